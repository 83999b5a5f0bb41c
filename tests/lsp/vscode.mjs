// The extension in VS Code, used as a person would. By hand: build the extension (grammars/vscode/README.md), then
//   code-server --auth none --bind-addr 127.0.0.1:8080 --install-extension grammars/vscode/chunkdsl.vsix
//   code-server --auth none --bind-addr 127.0.0.1:8080 --disable-workspace-trust EMPTY_FOLDER &
//   npm install --no-save puppeteer-core && CHROMIUM=/usr/bin/chromium node tests/lsp/vscode.mjs 8080 EMPTY_FOLDER
// with `chunkdsl` on the PATH of code-server. Says what was seen, leaves pictures in the working folder, and ends with
// code 1 where something does not come.
import { writeFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const [port, folder] = process.argv.slice(2);
const SPEC = `# ä😀 sequence-parallel
mesh tp[8] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 1024]                # 😀😀
tensor w : bf16[2048 @ tp, 1024]
policy gather { chunk = 256 along M, via = copy_engine }
op up(x, w) -> y {
    y = gelu(all_gather(x) @ w.T)       with gather
}
`;
writeFileSync(`${folder}/try.chunk`, SPEC);
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
await page.setViewport({ width: 1300, height: 800 });

const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));
const texts = (part) => page.$$eval(part, (found) => found.map((x) => x.textContent.replace(/\u00a0/g, " ")));
const typed = () => page.$$eval(".view-line", (found) => found
  .sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top)).map((x) => x.textContent.replace(/\u00a0/g, " ")));
const squiggles = async () => (await page.$$(".squiggly-error")).length;
const keys = async (...names) => {
  for (const name of names.slice(0, -1)) await page.keyboard.down(name);
  await page.keyboard.press(names.at(-1));
  for (const name of names.slice(0, -1).reverse()) await page.keyboard.up(name);
  await sleep(300);
};
const write = async (text) => { await page.keyboard.type(text, { delay: 40 }); await sleep(500); };
const go = async (place) => { await keys("Control", "KeyG"); await sleep(700); await write(place); await keys("Enter"); };
const see = async (what, look) => {
  for (let tries = 0; tries < 300; tries++, await sleep(400)) {
    const seen = await look().catch(() => null);
    if (seen) return console.log(`${what}: ${seen}`);
  }
  await page.screenshot({ path: "vscode-failed.png" });
  console.log(`${what} did not come; see vscode-failed.png`);
  process.exit(1);
};

await page.goto(`http://127.0.0.1:${port}/?folder=${encodeURI(folder)}`, { waitUntil: "domcontentloaded", timeout: 0 });
await see("explorer", async () => {
  for (const row of await page.$$(".explorer-folders-view .monaco-list-row")) {
    if ((await row.evaluate((x) => x.textContent)).includes("try.chunk")) return (await row.click({ count: 2 }), "there");
  }
});
await see("language", async () => (await texts(".statusbar-item")).find((x) => x === "Chunk"));
await see("colours", async () => {
  const found = await page.$$eval(".view-line span span", (all) => new Set(all.map((x) => x.className.split(" ")[0])).size);
  return found > 4 && found;
});
await see("inlay hint", async () => (await typed()).find((x) => x.includes("y: bf16[M, 2048 @ tp] =")));
await see("code lens", async () => (await texts(".codelens-decoration")).find((x) => x.includes("chunks of 256 rows")));
await go("8:16");
await keys("Control", "KeyK");
await keys("Control", "KeyI");
await see("hover", async () => (await texts(".monaco-hover")).find((x) => x.includes("Replicate"))?.slice(0, 90));
await page.screenshot({ path: "vscode-hover.png" });
await keys("Escape");
await go("6:55");
for (let i = 0; i < "copy_engine".length; i++) await keys("Backspace");
await keys("Control", "Space");
await see("completion", async () => {
  const offered = await texts(".suggest-widget .monaco-list-row .label-name");
  return offered.includes("copy_engine") && offered.includes("tma") && offered.join(" ");
});
await page.screenshot({ path: "vscode-completion.png" });
await write("copy_engine");
await keys("Escape");
await go("8:9");
for (let i = 0; i < "gelu".length; i++) await keys("Delete");
await write("gleu");
await keys("Escape");
await see("finding", async () => (await squiggles()) && "underlined");
await keys("Control", "Shift", "KeyM");
await see("problems", async () => (await texts(".markers-panel .monaco-list-row")).find((x) => x.includes("CD244")));
await page.screenshot({ path: "vscode-problem.png" });
await go("8:10");
await keys("Control", "Period");
await see("quick fix", async () => (await texts(".action-widget .monaco-list-row")).find((x) => x.includes("write `gelu`")));
await keys("Enter");
await see("mended", async () => (await squiggles()) === 0 && (await typed()).find((x) => x.includes("gelu(")));
await go("5:7");
await write("   ");
await keys("Escape");
await keys("F1");
await sleep(1500);
await write("Format Document");
await sleep(1500);
await keys("Enter");
await see("formatting", async () => (await typed()).find((x) => x.startsWith("tensor w : bf16[")));
await go("3:5");
await keys("F2");
await see("rename box", async () => (await page.$(".rename-box input")) && "there");
await keys("Control", "KeyA");
await write("tokens");
await keys("Enter");
await see("rename", async () => (await typed()).join("\n").match(/tokens/g)?.length >= 3 && "in 3 places");
await browser.close();
