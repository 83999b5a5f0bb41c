"""Read PTX text into functions, instructions and a control-flow graph, and run forward data flow over it.

Inline asm keeps its own labels and braces, so labels are looked up from the innermost scope outwards. Operands are
kept as text. An indirect branch may go to the labels of its table, or to every label where that is not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

Facts = frozenset
TOKEN = re.compile(
    r"""\s+ | \.loc[^\n]* | (?P<label>[\w$]+)\s*:(?!:) | [{}]
      | (?P<statement>(?:@\s*!?%?\w+\s+)? [^;{}]* (?:\{[^{}]*\}[^;{}]*)* ;) | [^\n]*""",
    re.X,
)


@dataclass(eq=False)
class Instruction:
    """`predicate` is "%p1", "!%p1" or ""; `place` is (file, line, column) of the source or None."""

    line: int
    predicate: str
    opcode: str
    operands: str
    scope: tuple[int, ...]
    place: tuple[str, int, int] | None
    successors: list[Instruction] = field(default_factory=list, repr=False)

    @property
    def parts(self) -> list[str]:
        return self.opcode.replace("::", "_").split(".")

    @property
    def text(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {self.operands}".strip()


@lru_cache(maxsize=16)
def read_ptx(text: str) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of each function body, linked to their successors."""
    files = {n: name for n, name in re.findall(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"', text, re.M)}
    bodies, position = [], 0
    clean = re.sub(r"//[^\n]*", "", text)
    while header := re.compile(r"^\s*(?:\.visible |\.weak )*\.(?:entry|func)\b[^;{]*\{", re.M).search(clean, position):
        start = header.end()
        instructions, labels, tables, position = _read_body(clean, start, clean.count("\n", 0, start) + 1, files)
        _link(instructions, labels, tables)
        bodies.append(tuple(instructions))
    return tuple(bodies)


def _read_body(text: str, position: int, line: int, files: dict[str, str]):
    instructions: list[Instruction] = []
    labels: dict[tuple[tuple[int, ...], str], int] = {}
    tables: dict[str, list[str]] = {}  # of indirect branches
    label = ""
    scope: tuple[int, ...] = ()
    scopes = 0
    place = None
    while position < len(text):
        found = TOKEN.match(text, position)
        piece = found[0]
        if piece.startswith(".loc"):
            numbers = re.match(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)", piece)
            place = (files.get(numbers[1], ""), int(numbers[2]), int(numbers[3])) if numbers else None
        elif piece == "{":
            scopes += 1
            scope = (*scope, scopes)
        elif piece == "}":
            if not scope:
                return instructions, labels, tables, found.end()
            scope = scope[:-1]
        elif found["label"]:
            label = found["label"]
            labels[scope, label] = len(instructions)
        elif found["statement"]:
            match = re.match(r"(?:@\s*(!?%?\w+)\s+)?([\w.:]+)\s*(.*);$", " ".join(piece.split()))
            if match and not match[2].startswith("."):
                instructions.append(Instruction(line, match[1] or "", match[2], match[3], scope, place))
            elif match and match[2] == ".branchtargets":
                tables[label] = re.split(r"[\s,]+", match[3].strip())
        line += piece.count("\n")
        position = found.end() if piece else position + 1
    return instructions, labels, tables, position


def _link(instructions: list[Instruction], labels, tables: dict[str, list[str]]) -> None:
    def target(name: str, scope: tuple[int, ...]) -> list[Instruction]:
        for depth in range(len(scope), -1, -1):
            index = labels.get((scope[:depth], name))
            if index is not None:
                return instructions[index : index + 1]
        return []

    for i, op in enumerate(instructions):
        root = op.parts[0]
        if root == "bra":
            op.successors += target(op.operands.strip(), op.scope)
        elif root == "brx":
            table = tables.get(op.operands.split(",")[-1].strip(), [name for _, name in labels])
            op.successors += [place for name in table for place in target(name, op.scope)]
        if root in ("bra", "brx", "ret", "exit", "trap") and not op.predicate:
            continue
        op.successors += instructions[i + 1 : i + 2]


def flow_forward(
    body: Iterable[Instruction], transfer: Callable[[Instruction, Facts], Facts], entry: Facts | None = None
) -> dict[Instruction, Facts]:
    """What may hold before each instruction: the union over all paths from the start, where `entry` holds, to a fixed
    point."""
    body = tuple(body)
    before: dict[Instruction, Facts] = {op: Facts() for op in body} | dict.fromkeys(body[:1], entry or Facts())
    work, waiting = list(reversed(body)), set(body)
    while work:
        op = work.pop()
        waiting.discard(op)
        after = transfer(op, before[op])
        for nxt in op.successors:
            if not after <= before[nxt]:
                before[nxt] |= after
                if nxt not in waiting:
                    waiting.add(nxt)
                    work.append(nxt)
    return before


def access_bytes(op: Instruction) -> int:
    """Bytes that one thread moves by a load, store or cp.async; 0 if the opcode does not say."""
    if op.opcode.startswith("cp.async.c"):
        size = re.search(r"\],\s*(0x[0-9a-fA-F]+|\d+)", op.operands)
        return int(size[1], 0) if size else 0
    width = re.search(r"\.[bfsu](\d+)$", op.opcode)
    lanes = re.search(r"\.v(\d)\.", op.opcode)
    return (int(width[1]) // 8 if width else 0) * (int(lanes[1]) if lanes else 1)
