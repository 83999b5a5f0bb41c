"""The specs that we ship (proven in tests/test_specs.py): their twins run without a finding.

What runs on simulated ranks is one world and one seed of each op by itself, so that the twin has
sizes for that op alone, in two calls: of one row, and of ragged shards of two chunks. A gradient op runs the second,
and those of `transformer_layer` none: they are of the kinds of `attention_projection`, and those of an MLP with packed
weights run in tests/runtime/test_backward_kinds.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from mutant_catchers import quiet_torch

from chunkdsl import pipeline
from chunkdsl.source import Source
from chunkdsl.verify import verify as verifying

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.chunk"))
# Ranks of the run, where they are not 2. An imported route serves its own size alone, and eight ranks are run in
# tests/emit.
WORLDS = {"imported_ring": None, "two_tier_gather": (1, 2), "dp_tp_mlp": (1, 2)}


@pytest.mark.parametrize("path", SPECS, ids=[p.stem for p in SPECS])
def test_a_shipped_spec_raises_no_alarm(path, monkeypatch):
    quiet_torch()
    checked = pipeline.check_source(Source(f"specs/{path.name}", path.read_text(encoding="utf-8")))
    assert not checked.report.diagnostics
    few = WORLDS.get(path.stem, 2)
    if few is None:
        return
    gradients = {op.name for op in checked.schedule.ops if op.name.endswith("_backward")}
    ran = [op for op in checked.schedule.ops if path.stem != "transformer_layer" or op.name not in gradients]
    whole_calls = verifying.call_sizes
    for op in ran:
        first = 2 if op.name in gradients else 1
        monkeypatch.setattr(verifying, "call_sizes", lambda s, world, first=first: whole_calls(s, world)[first:])
        rows = verifying.verify(checked.program, replace(checked.schedule, ops=(op,)), [few], 1, compiled=False)
        assert {"proof", "conformance"} <= {r.check for r in rows} and [r for r in rows if not r.passed] == []
