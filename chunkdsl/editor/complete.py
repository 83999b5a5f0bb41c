"""What may be typed next at a place of a spec, and the call that one is typing. From the text before the place: while
one types, little of it parses."""

from __future__ import annotations

import re

from chunkdsl.check.syntax import ITEMS
from chunkdsl.editor.choice import Choice, named
from chunkdsl.editor.complete_later import in_gradient, in_kernel, in_plan
from chunkdsl.editor.names import Index
from chunkdsl.editor.reference import Function, functions, keys, policies
from chunkdsl.editor.values import bound, placement_text
from chunkdsl.ir.dump import type_text
from chunkdsl.ir.graph import Program
from chunkdsl.ir.types import DimRef, Partial, Shard, SymSize, TensorType
from chunkdsl.lower.policy_values import BUILT
from chunkdsl.lower.tensors import BUILT_DTYPES, TABLE_DTYPES
from chunkdsl.plan.hierarchical import TIERS

_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*$")
_BARE = re.compile(r'"[^"\n]*"?|#[^\n]*')
_PAIRS = re.compile(r"(?:\bwith(?:\s+\w+)?|\bpolicy\s+\w+)\s*\{([^{}]*)$")
_CALL = re.compile(r"(?<!\w)(\w+)\s*\(([^()]*)$")
_NO_NAME = re.compile(r"\w{500}")
_LINKS = ("nvlink", "rdma")
LONGEST = 20_000  # characters of an item before the cursor
BUILT_LAYOUTS = {"zigzag": "", "cyclic": ", 128"}  # and what follows the axis


def _too_long(before: str) -> bool:
    """Whether what is before the cursor is no item that somebody writes. Patterns here look from every word to the end;
    in such a text the server would answer nobody for minutes."""
    return len(before) > LONGEST or _NO_NAME.search(before) is not None


def completions(path: str, index: Index, text: str, offset: int) -> list[Choice]:
    """Choices at an offset; () inside comments and strings."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    if re.search(r'^[^"#]*(?:"[^"]*"[^"#]*)*(#|"[^"]*$)', line):
        return []
    at = index.segment_at(offset)
    start = index.segments[at].start if at is not None else 0
    before = _BARE.sub(lambda m: " " * len(m[0]), text[start:offset])
    if _too_long(before):
        return []
    before = before[: len(before) - len(m[0])] if (m := _WORD.search(before)) else before
    if not before.strip() or (not line[: len(line) - len(m[0]) if m else len(line)] and line[:1].isalpha()):
        return [Choice(word, "keyword") for word in ITEMS]
    if not line and before.count("{") == before.count("}"):
        return [Choice(word, "keyword") for word in ITEMS]  # the item above has ended
    declared = index.declared()
    if pairs := _PAIRS.search(before):
        return _in_pairs(pairs[1], re.match(r"[^{}]*", text[offset:])[0], declared)
    if re.search(r"\bwith\s+$", before):
        return named(declared, "policy") + [Choice(name, "policy", what) for name, what in policies().items()]
    kind = re.match(r"\s*(\w*)", before)[1]
    if kind not in ("use", "gradient") and re.fullmatch(r"\s*\w+\s+", before):
        return []  # a new name
    if kind == "tensor":
        return _in_type(before, declared)
    if kind == "mesh":
        links = [Choice(link, "option") for link in _LINKS]
        return links if re.search(r"\bover\s+$", before) else [Choice("over", "keyword")]
    if kind in ("dim", "policy"):
        return named(declared, "dim")
    if kind == "op":
        return _in_op(path, index, at, before, offset, declared)
    if kind in ("plan", "use"):
        return in_plan(before, declared)
    if kind == "kernel":
        return in_kernel(before)
    return in_gradient(index, before, declared) if kind == "gradient" else []


def call_at(index: Index, text: str, offset: int) -> tuple[Function, int] | None:
    """The function whose arguments an offset lies in, and the number of the argument."""
    at = index.segment_at(offset)
    before = _BARE.sub(" ", text[index.segments[at].start if at is not None else 0 : offset])
    if _too_long(before):
        return None
    while (inner := re.sub(r"\([^()]*\)", "", before)) != before:
        before = inner
    match = _CALL.search(before)
    function = functions().get(match[1]) if match else None
    return (function, match[2].count(",")) if function else None


def _in_pairs(before: str, after: str, declared: dict[str, str]) -> list[Choice]:
    written = before.split(",")
    if "=" not in written[-1]:
        used = {pair.partition("=")[0].strip() for pair in (*written, *after.split(","))}
        return [Choice(k.name, "key", k.applies, f"{k.meaning}\n\n{', '.join(k.values)}\n\nauto: {k.automatic}")
                for k in keys().values() if k.name not in used]
    key = written[-1].partition("=")[0].strip()
    if key not in keys():
        return []
    if re.search(r"\b(?:along|per)\s+$", before):
        return named(declared, "dim") if re.search(r"along\s+$", before) else [Choice("shard", "keyword")]
    found = [Choice(value, "option") for value in dict.fromkeys((*BUILT.get(key, ()), *keys()[key].values, "auto"))]
    if key == "route" and len(named(declared, "axis")) > 1:
        found += [Choice(f"hierarchical({outer}, {inner})", "option") for outer in TIERS for inner in TIERS]
    return found + (named(declared, "plan") if key == "route" else [])


def _in_type(before: str, declared: dict[str, str]) -> list[Choice]:
    if re.search(r"@\s*$", before):
        return _placed(declared)
    if re.search(r"(?:@\s*\w*\([\w\s,]*|\bsum\s+)$", before):
        return named(declared, "axis")
    if re.search(r":\s*$", before):
        return [Choice(d.value, "dtype") for d in (*BUILT_DTYPES, *TABLE_DTYPES)]
    if before.count("[") > before.count("]"):
        return named(declared, "dim")
    return [Choice("sum", "keyword")] if "]" in before else []


def _in_op(path: str, index: Index, at: int, before: str, offset: int, declared: dict[str, str]) -> list[Choice]:
    if "{" not in before:
        return named(declared, "tensor")
    if re.search(r"[\w)]\.$", before):
        return [Choice("T", "keyword")]
    program, known = bound(path, index.segments, at, offset)
    found: list[Choice] = []
    call = _CALL.search(before)
    if call and call[1] == "reduce_scatter" and re.search(r",\s*\w+\s*@\s*$", call[2]):
        return _placed(declared)
    if call and call[1] in ("reduce_scatter", "all_to_all") and "," in call[2]:
        found += named(declared, "dim")
    if call and call[1] == "cast" and "," in call[2]:
        return [Choice(d.value, "dtype") for d in BUILT_DTYPES]
    if call and call[1] in BUILT_LAYOUTS:
        return named(declared, "axis")
    if call and re.search(r"\bover\s*=\s*$", call[2]):
        return named(declared, "axis")
    if program is not None:
        for name, type in known.items():
            shown = type_text(type, program.mesh)
            found.append(Choice(name, "value", shown, placement_text(program, type)))
            found += [Choice(text, "function", f"{shown}: {what}", "", True)
                      for text, what in _mends(program, name, type)]
    found += [Choice(f.name, "function", f.signature, f"{f.operands}: {f.result}") for f in functions().values()]
    return [*found, *named(declared, "kernel"), Choice("with", "keyword")]


def _placed(declared: dict[str, str]) -> list[Choice]:
    """What may stand behind the `@` of a dimension: an axis, or a layout over one."""
    axes = named(declared, "axis")
    texts = [f"{kind}({axis.text}{more})" for kind, more in BUILT_LAYOUTS.items() for axis in axes]
    return axes + [Choice(text, "function", "a layout of shards") for text in texts]


def _mends(program: Program, name: str, type: TensorType) -> list[tuple[str, str]]:
    """The collectives that give a value another placement, of those that are built: its text and what it does."""
    if type.rank != 2:
        return []
    placed = list(enumerate(type.placements))
    cut = [i for i, p in placed if isinstance(p, Shard)]
    rows = [i for i in cut if type.placements[i].dim == 0]
    sums = [i for i, p in placed if isinstance(p, Partial)]
    dims = [_dim_name(program, size) for size in type.shape]
    found = []
    for axes in ([rows[-1:], rows] if len(rows) > 1 else [rows] if rows else []):  # the inner axis first, then both
        found.append((f"all_gather({name}{_over(program, axes, cut)})", "gathers it"))
    if len(placed) == len(cut) == 1 and all(dims):
        here = type.placements[cut[0]].dim
        found.append((f"all_to_all({name}, {dims[here]} -> {dims[1 - here]})", "shards the other dimension"))
    for axis in sums:
        over = _over(program, [axis], sums)
        found.append((f"all_reduce({name}{over})", "adds it up"))
        if dims[0]:
            found.append((f"reduce_scatter({name}, {dims[0]}{over})", "adds it up, sharded"))
    return found


def _over(program: Program, axes: list[int], fit: list[int]) -> str:
    """The axes of a collective, where more than one fits."""
    names = [program.mesh.axes[i].name for i in axes]
    text = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f", over = {text}" if len(fit) > 1 else ""


def _dim_name(program: Program, size: SymSize) -> str:
    """The name of a size; "" if it has none, or more than one."""
    if isinstance(size, DimRef):
        return size.name
    names = [name for name, value in program.constants.items() if value == size]
    return names[0] if len(names) == 1 else ""
