"""Which names a file declares, and where. Reports duplicates and reserved names; resolves no use of a name.

A declaration that did not parse is not in the tree. Its name is read off the text (items start in column one), so
that its uses get no finding of their own.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from chunkdsl.check import names as rules
from chunkdsl.diagnostics import Report
from chunkdsl.lower.nearest import Nearest
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

# Attributes of a generated module's class; a test holds them against runtime/instance.py.
OP_NAMES_TAKEN = (
    "check", "close", "placements", "symmetric_bytes", "machine", "mesh", "ranks", "pid", "limit", "check_calls",
    "bounds", "why_not", "tma", "AXES", "RANKS", "NAME", "OPS", "RANGES", "PROVEN", "DIGEST", "TUNED", "COMMAND",
    "GENERATOR", "warps",
)  # fmt: skip
ARGUMENTS_TAKEN = ("self", "out")
KINDS = ("axis", "dim", "tensor", "op", "kernel", "plan")  # of names that may not be declared twice
Elsewhere = Callable[[str], Iterable[str]]  # the names of a kind
_ITEM_START = re.compile(r"^[A-Za-z]", re.MULTILINE)
# Names whose declaration did not parse, and a mesh that did not, by their looks in the text of an item.
LOST = re.compile(r"^\w+[^\S\n]+(\w+)|\b(?:dim|tensor|policy|op|plan|kernel|as)\s+(\w+)")
LOST_MESH = re.compile(r"^\s*mesh\b|^\w+\s+\w+\s*\[\s*\d")  # by its keyword, or a misspelt one by its looks
_LOST_AXIS = re.compile(r"(\w+)\s*\[")


def nowhere(kind: str) -> Iterable[str]:
    """No names: a text by itself."""
    return ()


@dataclass
class Names:
    """Declared names. `kinds` maps a name to what it is (axis, dim, tensor, op, kernel, plan) and where it stands.
    `elsewhere`: the names of a kind, also of policies, that a larger text declares of which this is a part; no use
    here means one of them, they are only near to one that nobody declares."""

    kinds: dict[str, tuple[str, Span]] = field(default_factory=dict)
    elsewhere: Elsewhere = nowhere
    policies: dict[str, nodes.Policy] = field(default_factory=dict)
    mesh: nodes.Mesh | None = None
    mesh_lost: bool = False  # a mesh is there, and did not parse
    lacks_mesh: bool = False  # there is none, and it was said
    lost: set[str] = field(default_factory=set)  # names whose declaration failed: their uses get no finding
    _near: dict[str, Nearest] = field(default_factory=dict)

    def kind_of(self, name: str) -> str | None:
        return self.kinds[name][0] if name in self.kinds else None

    def near(self, name: str, kind: str) -> tuple[str, ...]:
        """Nearest declared names of a kind."""
        return self.nearest(kind).of(name)

    def nearest(self, kind: str, others: Iterable[str] = ()) -> Nearest:
        """Declared names of a kind and others, to look up in. The others are the same for each look-up of a kind."""
        if kind not in self._near:
            self._near[kind] = Nearest(self._of_kind(kind, others))
        return self._near[kind]

    def _of_kind(self, kind: str, others: Iterable[str]) -> Iterator[str]:
        yield from self.policies if kind == "policy" else (n for n, (k, _) in self.kinds.items() if k == kind)
        yield from self.elsewhere(kind)
        yield from others

    def taken(self, name: str) -> bool:
        """Whether anything but a policy has the name."""
        return name in self.kinds or any(name in self.elsewhere(kind) for kind in KINDS)

    def known_as(self, name: str) -> str:
        """`x is a tensor`, or "" for a name nobody declared."""
        kind = self.kind_of(name)
        return "" if kind is None else f"`{name}` is {'an' if kind[0] in 'ao' else 'a'} {kind}"


def collect_names(
    file: nodes.File, source: Source, report: Report, elsewhere: Elsewhere = nowhere
) -> Names:
    """All declared names of a file. The first declaration of a name holds."""
    names = Names(elsewhere=elsewhere)
    for item in file.items:
        match item:
            case nodes.Mesh():
                if names.mesh is not None:
                    report.add(rules.duplicate_name("a mesh", item.span, names.mesh.span,
                                                    "a file has one mesh; axes go into one: `mesh a[2], b[4]`"))
                    names.lost.update(a.name.text for a in item.axes if a.name.text not in names.kinds)
                    continue
                names.mesh = item
                for axis in item.axes:
                    _declare(names, "axis", axis.name, report)
            case nodes.Dim():
                _declare(names, "dim", item.name, report, ARGUMENTS_TAKEN)
            case nodes.Tensor():
                _declare(names, "tensor", item.name, report, ARGUMENTS_TAKEN)
            case nodes.Op():
                _declare(names, "op", item.name, report, OP_NAMES_TAKEN)
            case nodes.Kernel():
                _declare(names, "kernel", item.name, report)
            case nodes.Plan() | nodes.UsePlan():
                _declare(names, "plan", item.name, report)
            case nodes.Policy():
                if item.name.text in names.policies:
                    first = names.policies[item.name.text].name.span
                    report.add(rules.duplicate_name(f"policy `{item.name.text}`", item.name.span, first))
                else:
                    names.policies[item.name.text] = item
    _find_lost(names, file, source)
    return names


def is_reserved(name: str, taken: tuple[str, ...] = ()) -> str:
    """Why a name cannot be used in a generated module, or "". Ops are attributes of it: none starts with `_`."""
    if keyword.iskeyword(name):
        return "it is a Python keyword"
    private = taken is OP_NAMES_TAKEN and name.startswith("_")
    return "the generated module uses it" if name in taken or private else ""


def _declare(names: Names, kind: str, name: nodes.Name, report: Report, taken: tuple[str, ...] = ()) -> None:
    if name.text in names.kinds:
        report.add(rules.duplicate_name(f"`{name.text}`", name.span, names.kinds[name.text][1]))
        return
    names.kinds[name.text] = (kind, name.span)
    if why := is_reserved(name.text, taken):
        report.add(rules.reserved_name(name.text, name.span, why))


def _find_lost(names: Names, file: nodes.File, source: Source) -> None:
    text = source.text
    parsed = {item.span.start for item in file.items}
    starts = [0, *(m.start() for m in _ITEM_START.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        if start in parsed or start == end:
            continue
        piece = text[start:end]
        names.lost |= {name for groups in LOST.findall(piece) for name in groups if name}
        if LOST_MESH.search(piece):
            names.lost.update(_LOST_AXIS.findall(piece))
            names.mesh_lost = names.mesh_lost or names.mesh is None
