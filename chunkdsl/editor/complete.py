"""What may be typed next at a place of a spec, and the call that one is typing. From the text before the place: while
one types, little of it parses."""

from __future__ import annotations

import re

from chunkdsl.check.syntax import ITEMS
from chunkdsl.editor.names import Index
from chunkdsl.editor.reference import Function, functions, keys, policies
from chunkdsl.editor.values import bound, placement_text
from chunkdsl.ir.dump import type_text
from chunkdsl.ir.types import Partial, Shard
from chunkdsl.lower.policy_values import BUILT
from chunkdsl.lower.tensors import BUILT_DTYPES
from chunkdsl.record import record

_WORD = re.compile(r"[A-Za-z_]\w*$")
_BARE = re.compile(r'"[^"\n]*"?|#[^\n]*')
_PAIRS = re.compile(r"(?:\bwith(?:\s+\w+)?|\bpolicy\s+\w+)\s*\{([^{}]*)$")
_CALL = re.compile(r"(\w+)\s*\(([^()]*)$")
_LINKS = ("nvlink", "rdma")
BUILT_LAYOUTS = {"zigzag": "", "cyclic": ", 128"}  # and what follows the axis


@record
class Choice:
    """`kind`: keyword, function, tensor, dim, axis, policy, op, plan, kernel, value, key, option, dtype."""

    text: str
    kind: str
    detail: str = ""
    text_of_help: str = ""
    first: bool = False  # it mends something here, so it is shown before the others


def completions(path: str, index: Index, text: str, offset: int) -> list[Choice]:
    """Choices at an offset; () inside comments and strings."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    if re.search(r'^[^"#]*(?:"[^"]*"[^"#]*)*(#|"[^"]*$)', line):
        return []
    at = index.segment_at(offset)
    start = index.segments[at].start if at is not None else 0
    before = _BARE.sub(lambda m: " " * len(m[0]), text[start:offset])
    before = before[: len(before) - len(m[0])] if (m := _WORD.search(before)) else before
    if not before.strip() or (not line[: len(line) - len(m[0]) if m else len(line)] and line[:1].isalpha()):
        return [Choice(word, "keyword") for word in ITEMS]
    declared = index.declared()
    if pairs := _PAIRS.search(before):
        return _in_pairs(pairs[1], re.match(r"[^{}]*", text[offset:])[0], declared)
    if re.search(r"\bwith\s+$", before):
        named = [Choice(name, "policy") for name, kind in declared.items() if kind == "policy"]
        return named + [Choice(name, "policy", what) for name, what in policies().items()]
    kind = re.match(r"\s*(\w*)", before)[1]
    if kind == "tensor":
        return _in_type(before, declared)
    if kind == "mesh":
        links = [Choice(link, "option") for link in _LINKS]
        return links if re.search(r"\bover\s+$", before) else [Choice("over", "keyword")]
    if kind in ("dim", "policy"):
        return _named(declared, "dim")
    if kind == "op":
        return _in_op(path, index, at, before, offset, declared)
    return [Choice(name, k) for name, k in declared.items()]


def call_at(index: Index, text: str, offset: int) -> tuple[Function, int] | None:
    """The function whose arguments an offset lies in, and the number of the argument."""
    at = index.segment_at(offset)
    before = _BARE.sub(" ", text[index.segments[at].start if at is not None else 0 : offset])
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
    found = [Choice(value, "option") for value in dict.fromkeys((*BUILT.get(key, ()), *keys()[key].values, "auto"))]
    return found + (_named(declared, "plan") if key == "route" else [])


def _in_type(before: str, declared: dict[str, str]) -> list[Choice]:
    if re.search(r"@\s*$", before):
        return _placed(declared)
    if re.search(r"(?:@\s*\w*\([\w\s,]*|\bsum\s+)$", before):
        return _named(declared, "axis")
    if re.search(r":\s*$", before):
        return [Choice(d.value, "dtype") for d in BUILT_DTYPES]
    return _named(declared, "dim") if before.count("[") > before.count("]") else [Choice("sum", "keyword")]


def _in_op(path: str, index: Index, at: int, before: str, offset: int, declared: dict[str, str]) -> list[Choice]:
    if "{" not in before:
        return _named(declared, "tensor")
    program, known = bound(path, index.segments, at, offset)
    found: list[Choice] = []
    call = _CALL.search(before)
    if call and call[1] == "reduce_scatter" and re.search(r",\s*\w+\s*@\s*$", call[2]):
        return _placed(declared)
    if call and call[1] == "reduce_scatter" and "," in call[2]:
        found += _named(declared, "dim")
    if call and call[1] in BUILT_LAYOUTS:
        return _named(declared, "axis")
    if call and re.search(r"\bover\s*=\s*$", call[2]):
        return _named(declared, "axis")
    if program is not None:
        for name, type in known.items():
            shown = type_text(type, program.mesh)
            found.append(Choice(name, "value", shown, placement_text(program, type)))
            for placement in type.placements if type.rank > 1 else ():
                if isinstance(placement, Shard) and placement.dim == 0:
                    found.append(Choice(f"all_gather({name})", "function", f"{shown}: gathers it", "", True))
                if isinstance(placement, Partial):
                    found.append(Choice(f"all_reduce({name})", "function", f"{shown}: adds it up", "", True))
                    rows = [d for d, kind in declared.items() if kind == "dim"]
                    first = re.match(r"[^\[]*\[(\w+)", shown)
                    if first and first[1] in rows:
                        text = f"reduce_scatter({name}, {first[1]})"
                        found.append(Choice(text, "function", f"{shown}: adds it up, sharded", "", True))
    found += [Choice(f.name, "function", f.signature, f"{f.operands}: {f.result}") for f in functions().values()]
    return [*found, *_named(declared, "kernel"), Choice("with", "keyword")]


def _placed(declared: dict[str, str]) -> list[Choice]:
    """What may stand behind the `@` of a dimension: an axis, or a layout over one."""
    axes = _named(declared, "axis")
    texts = [f"{kind}({axis.text}{more})" for kind, more in BUILT_LAYOUTS.items() for axis in axes]
    return axes + [Choice(text, "function", "a layout of shards") for text in texts]


def _named(declared: dict[str, str], kind: str) -> list[Choice]:
    return [Choice(name, kind) for name, k in declared.items() if k == kind]
