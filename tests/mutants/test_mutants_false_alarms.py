"""The specs that we ship: proven for 2 and 4 ranks, and their twins run without a finding."""

from pathlib import Path

import pytest
from mutant_catchers import quiet_torch

from chunkdsl import pipeline
from chunkdsl.check.worlds import prove_op
from chunkdsl.source import Source
from chunkdsl.verify.verify import verify

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.chunk"))
# (ranks of the proof, ranks of the run), where they are not 4 and 2. An imported route serves its own size alone, and
# eight ranks are run in tests/emit.
WORLDS = {"imported_ring": (8, None), "two_tier_gather": ((2, 2), (1, 2)), "dp_tp_mlp": ((2, 2), (1, 2))}


@pytest.mark.parametrize("path", SPECS, ids=[p.stem for p in SPECS])
def test_a_shipped_spec_raises_no_alarm(path):
    quiet_torch()
    checked = pipeline.check_source(Source(f"specs/{path.name}", path.read_text(encoding="utf-8")))
    assert not checked.report.diagnostics
    many, few = WORLDS.get(path.stem, (4, 2))
    for op in checked.schedule.ops:
        assert prove_op(checked.schedule, op, many).proven
    if few is None:
        return
    rows = verify(checked.program, checked.schedule, [few], 1, compiled=False)
    assert {"proof", "conformance"} <= {r.check for r in rows} and [r for r in rows if not r.passed] == []
