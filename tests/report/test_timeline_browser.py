"""The page in a browser without a screen. Skipped where there is none."""

import html
import json
import re
import shutil
import subprocess

import pytest

from chunkdsl.pipeline import timeline
from chunkdsl.report.timeline_page import render_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

# Runs after the page's own script: stretches the chart, points at a task, and writes what it found into the page.
PROBE = """<script>
addEventListener("load", () => {
  const chart = document.querySelector(".chart"), before = chart.clientWidth;
  document.querySelector(".in").click();
  const bars = [...chart.querySelectorAll("[data-task]")];
  const bar = bars.find(b => b.dataset.waits && b.classList.contains("tile"));
  bar.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  const tip = document.querySelector(".tip");
  const seen = { grown: chart.clientWidth / before, tip: tip.hidden ? "" : tip.textContent,
    lit: chart.querySelectorAll(".bar.on").length, shown: bars.filter(b => b.getBoundingClientRect().height > 2).length,
    tasks: bars.length, wide: document.documentElement.scrollWidth <= innerWidth };
  document.body.append(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
});
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_a_page_works_in_a_browser(tmp_path):
    _, found = timeline("specs/tp_mlp.chunk", 8, "h200", {"M": 2048})
    path = tmp_path / "t.html"
    path.write_text(render_page(found, "g").replace("</body>", PROBE), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--window-size=1400,1000", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
    made = subprocess.run(command, capture_output=True, text=True, timeout=240)
    written = re.search(r'<pre id="seen">(.*?)</pre>', made.stdout, re.DOTALL)
    assert written, made.stderr[-2000:]
    seen = json.loads(html.unescape(written[1]))
    assert seen["grown"] == pytest.approx(1.6, abs=0.05)
    assert seen["tip"].startswith("rank ") and "waits for" in seen["tip"] and seen["lit"] >= 2
    assert seen["shown"] == seen["tasks"] == len(found[0].plan.tasks) and seen["wide"]
