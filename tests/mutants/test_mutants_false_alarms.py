"""The specs that we ship: proven for 2 and 4 ranks, and their twins run without a finding."""

from pathlib import Path

import pytest
from mutant_catchers import quiet_torch

from chunkdsl import pipeline
from chunkdsl.check.worlds import prove_op
from chunkdsl.source import Source
from chunkdsl.verify.verify import verify

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.chunk"))


@pytest.mark.parametrize("path", SPECS, ids=[p.stem for p in SPECS])
def test_a_shipped_spec_raises_no_alarm(path):
    quiet_torch()
    checked = pipeline.check_source(Source(f"specs/{path.name}", path.read_text(encoding="utf-8")))
    assert not checked.report.diagnostics
    for op in checked.schedule.ops:
        assert prove_op(checked.schedule, op, 4).proven
    rows = verify(checked.program, checked.schedule, [2], 1, compiled=False)
    assert {"proof", "conformance"} <= {r.check for r in rows} and [r for r in rows if not r.passed] == []
