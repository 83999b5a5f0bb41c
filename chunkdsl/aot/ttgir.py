"""Read TTGIR text into regions and operations, with enough data flow for lints. Not a verifier: unknown
operations are kept as text, and nothing is checked against their definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
NAME = re.compile(r'\s*"?([a-z_]+\.[\w.]+|tt\.\w+)"?')
LOCATION = re.compile(r" loc\((?:#loc\d*|[^()]*|[^()]*\([^()]*\)[^()]*)\)")


@dataclass(eq=False)
class Region:
    """A block: operations in order, the names of its arguments, and what defines each value."""

    owner: Op | None
    operations: list[Op] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    values: dict[str, Op] = field(default_factory=dict)

    @property
    def terminator(self) -> Op | None:
        return self.operations[-1] if self.operations else None


@dataclass(eq=False)
class Op:
    """`line` is 1-based; `text` has no location; `operands` are the values named after the `=`, in order."""

    name: str
    line: int
    text: str
    results: list[str]
    operands: list[str]
    region: Region
    location: str = ""
    regions: list[Region] = field(default_factory=list)

    @property
    def parent(self) -> Op | None:
        return self.region.owner

    def ancestors(self) -> Iterator[Op]:
        op = self.parent
        while op is not None:
            yield op
            op = op.parent

    def walk(self) -> Iterator[Op]:
        """Every operation inside, in order of text, not itself."""
        for region in self.regions:
            for op in region.operations:
                yield op
                yield from op.walk()

    @cached_property
    def end(self) -> int:
        """The last line of the operation's regions."""
        return max([self.line, *(op.line for op in self.walk())])

    @property
    def loop(self) -> Op | None:
        """The innermost loop around."""
        return next((a for a in self.ancestors() if a.name in ("scf.for", "scf.while")), None)

    @property
    def scalar(self) -> bool:
        return "tensor<" not in self.text

    @property
    def strings(self) -> str:
        return " ".join(STRING.findall(self.text))


@dataclass(eq=False)
class Module:
    """The whole text: `operations` in order of text, threads of a program, "cuda:90", and the location table."""

    operations: list[Op]
    threads: int
    target: str
    locations: dict[str, str]

    def named(self, *names: str) -> list[Op]:
        return [op for op in self.operations if op.name in names]

    def place(self, op: Op) -> tuple[str, int, int] | None:
        """(file, line, column) of the innermost function that `op` came from; None without line information."""
        key = op.location
        for _ in range(20):
            if found := re.match(r'"([^"]*)":(\d+):(\d+)$', key):
                return found[1], int(found[2]), int(found[3])
            inner = re.match(r'(?:"[^"]*"\(|callsite\()?(#loc\d*|"[^"]*":\d+:\d+)', key)
            if not inner:
                return None
            key = self.locations.get(inner[1], inner[1])
        return None


@lru_cache(maxsize=16)
def read_ttgir(text: str) -> Module:
    """Parse TTGIR as `triton.compile` prints it (3.6 and 3.7)."""
    top = Region(None)
    stack: list[Region] = [top]
    operations: list[Op] = []
    head = re.search(r"module attributes \{(.*)\}", text)
    facts = dict(re.findall(r'"?(ttg\.[\w-]+)"? = ("[^"]*"|\d+)', head[1] if head else ""))
    for number, raw in enumerate(text.splitlines(), 1):
        where = re.search(r" loc\((.*)\)$", raw)
        line = LOCATION.sub("", raw).strip()
        if not line or line.startswith(("#", "//", "module ")):
            continue
        if line.startswith("^bb"):
            stack[-1].arguments = VALUE.findall(line)
            continue
        if line.startswith("}"):
            if len(stack) > 1:
                closed = stack.pop()
                if line.endswith("{") and closed.owner:  # `} else {`, `} do {`
                    stack.append(_region(closed.owner))
            continue
        if not line.startswith(("%", '"')) and not NAME.match(line):
            if line.endswith("{") and stack[-1].owner:  # `default {`, `partition0(...) num_warps(4) {`
                stack.append(_region(stack[-1].operations[-1]))
                stack[-1].arguments = VALUE.findall(line)
            continue
        op = _operation(line, number, stack[-1], where[1] if where else "")
        stack[-1].operations.append(op)
        for result in op.results:
            stack[-1].values[result] = op
        operations.append(op)
        if line.endswith("{") or line.endswith("({"):
            stack.append(_region(op))
            stack[-1].arguments = _arguments(op)
    threads = int(facts.get("ttg.num-warps", 4)) * int(facts.get("ttg.threads-per-warp", 32))
    locations = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.M))
    return Module(operations, threads, facts.get("ttg.target", "").strip('"'), locations)


def _region(owner: Op) -> Region:
    owner.regions.append(Region(owner))
    return owner.regions[-1]


def _operation(line: str, number: int, region: Region, location: str) -> Op:
    left, mark, right = line.partition(" = ") if line.startswith("%") else ("", "", line)
    results = [v.split(":")[0] for v in re.findall(r"%[\w$.-]+(?::\d+)?", left)] if mark else []
    named = NAME.match(right)
    operands = VALUE.findall(STRING.sub('""', right))
    return Op(named[1] if named else right.split(" ")[0], number, line, results, operands, region, location)


def _arguments(op: Op) -> list[str]:
    if op.name == "scf.for":
        carried = re.search(r"iter_args\((.*?)\) ->", op.text)
        names = re.findall(r"(%[\w$.-]+) = ", carried[1]) if carried else []
        return [op.operands[0], *names]
    if op.name == "scf.while":
        carried = re.search(r"scf\.while \((.*?)\) :", op.text)
        return re.findall(r"(%[\w$.-]+) = ", carried[1]) if carried else []
    if op.name == "tt.func":
        return re.findall(r"(%[\w$.-]+):", op.text)
    return []
