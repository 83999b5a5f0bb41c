"""Lints over the PTX of a small all-reduce in the switch, which is CUDA C++: the instruction forms, and what stands
between a store and its release, an acquire and the load in the switch.

Not among the lints of `lints`, which read what Triton makes of a kernel: this kernel is written instruction by
instruction, so that every access to global memory can be held to one of a few forms.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.aot.lint_order import is_barrier, is_poll, is_release
from chunkdsl.aot.ptx import Facts, Instruction, flow_forward, read_ptx

FORMS = (
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2",
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2",
    "multimem.ld_reduce.relaxed.sys.global.add.v4.f32",
)
ACCESSES = ("ld", "ldu", "st", "atom", "red")
ELSEWHERE = ("param", "shared", "local", "const")


def lint_switch(text: str) -> list[str]:
    """What is wrong with a kernel's PTX, one line each; empty if nothing is.

    A load in the switch has one of `FORMS`; every other access to global memory is strong and at system scope, so none
    can stop at a stale line (`.nc`, `.ca`, weak); a barrier stands between staged vectors and the release that
    publishes them, and a barrier and then `fence.proxy.alias` between an acquire and the load in the switch, whose
    addresses are other names of what was stored.
    """
    found, polls, loads = [], 0, 0
    for body in read_ptx(text):
        before = flow_forward(body, _open)
        for op in body:
            polls, loads = polls + is_poll(op), loads + (op.opcode in FORMS)
            found += [f"line {op.line}: {op.text}: {why}" for why in _faults(op, before[op])]
    if not loads:
        found.append("nothing is added up in the switch")
    if not polls:
        found.append("nothing is acquired before the switch adds up")
    return found


def _faults(op: Instruction, facts: Facts) -> Iterator[str]:
    parts = op.parts
    if parts[0] == "multimem":
        if op.opcode not in FORMS:
            yield "not one of the forms of a load in the switch"
        if "acquired" in facts:
            yield "no barrier since one thread's acquire"
        if "unfenced" in facts:
            yield "no fence.proxy.alias since the acquire"
    elif parts[0] in ACCESSES and not any(p.startswith(ELSEWHERE) for p in parts[1:]):
        if "sys" not in parts or not {"relaxed", "acquire", "release"} & set(parts):
            yield "an access that is weak, cached or of a narrower scope than the system"
        if is_release(op) and "staged" in facts:
            yield "releases staged vectors without a barrier in between"


def _open(op: Instruction, facts: Facts) -> Facts:
    """staged: vectors stored since the last barrier; acquired: a poll since then; unfenced: no fence after one."""
    if is_barrier(op):
        return facts - {"staged", "acquired"}
    if is_poll(op):
        return facts | {"acquired", "unfenced"}
    if op.opcode == "fence.proxy.alias" and not op.predicate and "acquired" not in facts:
        return facts - {"unfenced"}
    if op.parts[0] == "st" and "v4" in op.parts and "global" in op.parts:
        return facts | {"staged"}
    return facts
