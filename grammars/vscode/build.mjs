// Puts into out/ what the extension loads: its code in one file, and the two grammar files that lie above this folder.
import { copyFileSync, mkdirSync } from "node:fs";
import { build } from "esbuild";

mkdirSync("out", { recursive: true });
for (const file of ["chunk.tmLanguage.json", "language-configuration.json"]) copyFileSync(`../${file}`, `out/${file}`);
await build({
  entryPoints: ["src/extension.ts"],
  outfile: "out/extension.js",
  bundle: true,
  minify: true,
  platform: "node",
  format: "cjs",
  target: "node18",
  external: ["vscode"],
});
