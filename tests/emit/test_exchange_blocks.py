"""Forms, blocks, warps and programs of a small all-reduce are those that the plan shows and the cost model counts."""

import pytest
import torch
from emitted import built

from chunkdsl.aot.record import RecordingMachine
from chunkdsl.plan.exchange_shape import shape_of
from chunkdsl.render.exchange import FORMS

TEXT = """mesh tp[2] over nvlink
dim R = 1..300
dim H = {h}
tensor p : bf16[R, H] sum tp
tensor g : bf16[H]
op f(p, g) -> y {{ y = {what} with {{ {p} }} }}
"""
CASES = (
    ("all_reduce(p) * g", 512, "validity = word"), ("all_reduce(p) * g", 512, "algorithm = two_shot, buffers = 2"),
    ("rms_norm(all_reduce(p), g)", 1024, "validity = word"), ("rms_norm(all_reduce(p), g)", 8200, "validity = flag"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[" ".join(map(str, c)) for c in CASES])
def test_a_call_is_launched_as_the_plan_says(case, monkeypatch):
    what, h, policy = case
    _, schedule, module, title = built(TEXT.format(what=what, h=h, p=policy))
    seen = []

    def launch(self, kernel, programs, args, constants, warps, stages, early=False):
        seen.append((constants["FORM"], constants["WIDE"], constants["BLOCK"], warps, programs))

    monkeypatch.setattr(RecordingMachine, "launch", launch)
    machine, op = RecordingMachine(world=4), schedule.ops[0]
    f = getattr(module, title)(machine=machine).f
    for rows in (1, 2, 7, 133, 290):  # of 8,200 columns: just below what is left to the library
        seen.clear()
        f(torch.zeros(rows, h, dtype=torch.bfloat16), torch.zeros(h, dtype=torch.bfloat16))
        s = shape_of(op, 4, {"R": rows}, machine.sms)
        assert seen == [(FORMS[s.form.name], s.form.wide, s.block, s.warps, s.programs)]
