"""Copies the helpers that a generated module needs out of runtime/, in their order, with what they need in turn."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from chunkdsl.parsing import parse_python

RUNTIME = Path(__file__).resolve().parent.parent / "runtime"
FILES = (
    "device.py",
    "bands.py",
    "warps.py",
    "library.py",
    "turns.py",
    "words.py",
    "neighbours.py",
    "pieces.py",
    "prepared.py",
    "lanes.py",
    "repeats.py",
    "collectives.py",
    "machine.py",
    "live.py",
    "gradients.py",
    "apart.py",
    "dispatch.py",
    "arguments.py",
    "descriptors.py",
    "placed.py",
    "plain.py",
    "sums.py",
    "slices.py",
    "layer.py",
    "failures.py",
    "straight.py",
    "gated.py",
    "replay.py",
    "known.py",
    "calls.py",
    "operation.py",
    "layouts.py",
    "blocks.py",
    "exchange.py",
    "cuda.py",
    "multimem.py",
    "deal.py",
    "ranks.py",
    "mesh.py",
    "instance.py",
)


@dataclass(frozen=True)
class Helper:
    name: str
    text: str
    uses: frozenset[str]
    imports: tuple[str, ...]


def names_in(tree: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))


@cache
def helpers() -> tuple[Helper, ...]:
    """Every top-level function, class and value of runtime/, with its source text and decorators."""
    found = []
    for file in FILES:
        text = (RUNTIME / file).read_text(encoding="utf-8")
        lines = text.splitlines()
        tree = parse_python(text)
        imports = {}
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = getattr(node, "module", None)
                if module == "__future__" or (module or "").startswith("chunkdsl"):
                    continue
                for alias in node.names:
                    imports[(alias.asname or alias.name).split(".")[0]] = ast.get_source_segment(text, node)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign)):
                is_value = isinstance(node, ast.Assign)
                name = node.targets[0].id if is_value else node.name
                start = min([node.lineno, *(d.lineno for d in ([] if is_value else node.decorator_list))])
                uses = names_in(node)
                needed = tuple(sorted({line for name, line in imports.items() if name in uses}))
                found.append(Helper(name, "\n".join(lines[start - 1 : node.end_lineno]), uses, needed))
    return tuple(found)


@lru_cache(maxsize=1024)
def names_of(text: str) -> frozenset[str]:
    """Rendered again, most kernels of a schedule are the same text."""
    return names_in(parse_python(text))


def needed_helpers(texts: Iterable[str]) -> tuple[Helper, ...]:
    """Helpers that parts of the module's text name, and those that these name, in the order of runtime/."""
    known = {h.name: h for h in helpers()}
    wanted: set[str] = set()
    queue = [name for text in texts for name in names_of(text) & known.keys()]
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += known[name].uses & known.keys()
    return tuple(h for h in helpers() if h.name in wanted)
