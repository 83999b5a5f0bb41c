"""Reads AMD's assembly (amdgcn) into functions, instructions and a control-flow graph, for flow_forward (ptx.py).

Triton inlines everything, so that a kernel is one function without calls. Lanes that an instruction does not run in
are not looked at: what some lanes of a wave do counts as done by it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from chunkdsl.aot.ptx import Instruction

LABEL = re.compile(r"^([.\w$]+):")
OPCODE = re.compile(r"^\s+([a-z]\w*)\s*([^;]*)")
ENDS = ("s_endpgm", "s_setpc_b64", "s_trap")
WAVE = 64  # lanes


@lru_cache(maxsize=16)
def read_gcn(text: str) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of each function, linked to their successors."""
    bodies = []
    for name in re.findall(r"^\s*\.type\s+([\w$.]+),@function", text, re.M):
        start = re.search(rf"^{re.escape(name)}:", text, re.M)
        if start:
            end = text.find(".Lfunc_end", start.end())
            first = text.count("\n", 0, start.start()) + 1
            bodies.append(_read_body(text[start.start() : end if end >= 0 else len(text)], first))
    return tuple(bodies)


def _read_body(text: str, line: int) -> tuple[Instruction, ...]:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for number, row in enumerate(text.split("\n"), line):
        if label := LABEL.match(row):
            labels[label[1]] = len(instructions)
        elif found := OPCODE.match(row):
            instructions.append(Instruction(number, "", found[1], " ".join(found[2].split()), (), None))
    for i, op in enumerate(instructions):
        if op.opcode in ("s_branch",) or op.opcode.startswith("s_cbranch"):
            at = labels.get(op.operands.split(",")[0].strip())
            op.successors += instructions[at : at + 1] if at is not None else []
        if op.opcode != "s_branch" and op.opcode not in ENDS:
            op.successors += instructions[i + 1 : i + 2]
    return tuple(instructions)


def waves_of(text: str) -> int:
    """Waves of a program; 1 where the text does not say."""
    found = re.search(r"\.max_flat_workgroup_size:\s*(\d+)", text)
    return max(1, int(found[1]) // WAVE) if found else 1
