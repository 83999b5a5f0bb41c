"""A small client of the Language Server Protocol over stdio, such as an editor is."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 300  # seconds: only a hang takes longer, however slow the machine


class Failed(Exception):
    """The server answered with an error."""


class Editor:
    """Starts `chunkdsl lsp`. `start`: code that starts it instead, with a fault for instance."""

    clock = staticmethod(time.perf_counter)  # asked when a message has arrived

    def __init__(self, folder, start="from chunkdsl.cli import main; main(['lsp'])", options=None, encodings=None):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=environment, cwd=folder)
        self.folder, self.texts, self.versions, self._last = folder, {}, {}, 0
        self._messages, self.log, self.published = queue.Queue(), [], []
        threading.Thread(target=self._read, daemon=True).start()
        general = {"positionEncodings": encodings} if encodings else {}
        self.capabilities = self.request("initialize", {
            "processId": None, "rootUri": Path(folder).as_uri(), "capabilities": {"general": general},
            "initializationOptions": options,
        })["capabilities"]
        self.notify("initialized", {})

    def _read(self):
        stream = self.process.stdout
        while header := stream.readline():
            length = int(header.split(b":")[1]) if header.lower().startswith(b"content-length") else None
            while stream.readline().strip():
                pass
            content, at = stream.read(length), self.clock()
            self._messages.put((at, json.loads(content)))

    def _send(self, message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def notify(self, method, params):
        self._send({"method": method, "params": params})

    def request(self, method, params):
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        while True:
            _, message = self._messages.get(timeout=PATIENCE)
            if message.get("id") == self._last and "method" not in message:
                if "error" in message:
                    raise Failed(message["error"]["message"])
                return message.get("result")
            self._keep(message)

    def _keep(self, message):
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published.append(message["params"])
        elif message.get("method") == "window/logMessage":
            self.log.append(message["params"]["message"])

    # ---- what an editor does

    def uri(self, name):
        return (Path(self.folder) / name).as_uri()

    def open(self, name, text):
        self.texts[name], self.versions[name] = text, self.versions.get(name, 0) + 1
        version = self.versions[name]  # never one that was used, so that old findings are not taken for new ones
        document = {"uri": self.uri(name), "languageId": "chunk", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, name, text):
        self.texts[name] = text
        self.versions[name] += 1
        document = {"uri": self.uri(name), "version": self.versions[name]}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def findings(self, name):
        """The findings for the version that is open now."""
        while True:
            for params in reversed(self.published):
                if params["uri"] == self.uri(name) and params.get("version") == self.versions[name]:
                    return params["diagnostics"]
            self._keep(self._messages.get(timeout=PATIENCE)[1])

    def answers(self, name, count):
        """(what the clock said, number of findings) of the next answers about the version that is open, in order."""
        found = []
        while len(found) < count:
            at, message = self._messages.get(timeout=PATIENCE)
            self._keep(message)
            params = message.get("params", {})
            if params.get("uri") == self.uri(name) and params.get("version") == self.versions[name]:
                found.append((at, len(params["diagnostics"])))
        return found

    def position(self, name, part, after=0):
        """The place `after` characters into the first occurrence of a part of the text, in UTF-16 units."""
        before = self.texts[name][: self.texts[name].index(part) + after]
        line = before.rpartition("\n")[2]
        return {"line": before.count("\n"), "character": len(line.encode("utf-16-le")) // 2}

    def ask(self, method, name, part=None, after=0, **more):
        params = {"textDocument": {"uri": self.uri(name)}, **more}
        if part is not None:
            params["position"] = self.position(name, part, after)
        return self.request(f"textDocument/{method}", params)

    def apply(self, name, edits):
        """The text after edits of the server."""
        lines = self.texts[name].split("\n")

        def offset(p):
            line = lines[p["line"]] if p["line"] < len(lines) else ""
            units = line.encode("utf-16-le")[: 2 * p["character"]].decode("utf-16-le")
            return min(sum(len(x) + 1 for x in lines[: p["line"]]) + len(units), len(self.texts[name]))

        text = self.texts[name]
        for edit in sorted(edits, key=lambda e: -offset(e["range"]["start"])):
            text = text[: offset(edit["range"]["start"])] + edit["newText"] + text[offset(edit["range"]["end"]) :]
        return text

    def close(self):
        """Shut down as the protocol says; the exit code."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(timeout=PATIENCE)
