// Starts `chunkdsl lsp` for .chunk files. All knowledge of the language is in the server.
import { commands, ExtensionContext, window, workspace } from "vscode";
import { LanguageClient } from "vscode-languageclient/node";

let client: LanguageClient | undefined;

async function start(): Promise<void> {
  const settings = workspace.getConfiguration("chunkdsl");
  const [command, ...args] = settings.get<string[]>("command", ["chunkdsl", "lsp"]);
  client = new LanguageClient(
    "chunkdsl",
    "chunkdsl",
    { command, args },
    {
      documentSelector: [{ language: "chunk" }],
      initializationOptions: { inlayHints: settings.get<boolean>("inlayHints", true) },
      synchronize: { configurationSection: "chunkdsl" },
    },
  );
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `'${[command, ...args].join(" ")}' did not start: ${error}. ` +
        "Install it with pip install 'chunkdsl[lsp]', or set chunkdsl.command.",
    );
  }
}

export async function activate(context: ExtensionContext): Promise<void> {
  context.subscriptions.push(
    commands.registerCommand("chunkdsl.restart", async () => {
      await deactivate();
      await start();
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.dispose().catch(() => undefined);
  client = undefined;
}
