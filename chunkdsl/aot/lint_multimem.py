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
STORES = (
    "multimem.st.relaxed.sys.global.v4.bf16x2",
    "multimem.st.relaxed.sys.global.v4.f16x2",
    "multimem.st.relaxed.sys.global.v4.f32",
)
ACCESSES = ("ld", "ldu", "st", "atom", "red")
ELSEWHERE = ("param", "shared", "local", "const")


def lint_switch(text: str) -> list[str]:
    """What is wrong with a kernel's PTX, one line each; empty if nothing is.

    A load in the switch has one of `FORMS`, a store one of `STORES`; every other access to global memory is strong and
    at system scope, so none can stop at a stale line (`.nc`, `.ca`, weak); a barrier stands between staged vectors and
    the release that publishes them, and a barrier and then `fence.proxy.alias` between an acquire and a load of what it
    guards, whose address is another name of what was stored; the same fence stands between a store in the switch and
    its release.
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
        if op.opcode not in FORMS + STORES:
            yield "not one of the forms of an access in the switch"
        yield from _unordered(facts)
    elif parts[0] in ACCESSES and not any(p.startswith(ELSEWHERE) for p in parts[1:]):
        if "sys" not in parts or not {"relaxed", "acquire", "release"} & set(parts):
            yield "an access that is weak, cached or of a narrower scope than the system"
        if is_release(op) and "staged" in facts:
            yield "releases staged vectors without a barrier in between"
        if is_release(op) and "other name" in facts:
            yield "no fence.proxy.alias since the store in the switch"
        if parts[0] == "ld" and "v4" in parts:
            yield from _unordered(facts)


def _unordered(facts: Facts) -> Iterator[str]:
    if "acquired" in facts:
        yield "no barrier since one thread's acquire"
    if "unfenced" in facts:
        yield "no fence.proxy.alias since the acquire"


def _open(op: Instruction, facts: Facts) -> Facts:
    """staged: vectors stored since the last barrier; acquired: a poll since then; unfenced: no fence after one; other
    name: a store in the switch, and no fence after it."""
    if is_barrier(op):
        return facts - {"staged", "acquired"}
    if is_poll(op):
        return facts | {"acquired", "unfenced"}
    if op.opcode == "fence.proxy.alias" and not op.predicate and "acquired" not in facts:
        return facts - {"unfenced", "other name"}
    if op.opcode in STORES:
        return facts | {"staged", "other name"}
    if op.parts[0] == "st" and "v4" in op.parts and "global" in op.parts:
        return facts | {"staged"}
    return facts
