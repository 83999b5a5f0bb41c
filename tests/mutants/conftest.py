"""Makes the modules of this folder importable under every import mode of pytest; prints which catcher caught what."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_terminal_summary(terminalreporter):
    """The table: every fault that was planted in this session, where, and who caught it."""
    rows = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                rows += [row for key, row in report.user_properties if key == "mutant"]
    if not rows:
        return
    rows = [("fault", "base", "planted in", "caught by"), *sorted(rows, key=lambda r: (r[2], r[3], r[0]))]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    terminalreporter.section("mutants")
    for row in rows:
        terminalreporter.write_line("  ".join([*(c.ljust(w) for c, w in zip(row[:3], widths, strict=True)), row[3]]))
