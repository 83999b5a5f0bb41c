"""What may be typed next in plans, kernel items, imports and gradients. From the text of the item before the place."""

from __future__ import annotations

import re

from chunkdsl.editor.choice import Choice, named
from chunkdsl.editor.names import Index
from chunkdsl.editor.uses import item_of
from chunkdsl.lower.sizes import FUNCTIONS
from chunkdsl.lower.tensors import BUILT_DTYPES
from chunkdsl.plan.trace import CONTRACTS
from chunkdsl.syntax import nodes

_STEPS = ("send", "fetch", "for", "let", "if", "lane")
_BINDINGS = ("arg", "grid", "const")
_BOUND = re.compile(r"\b(?:for|let)\s+(\w+)")
_LISTS = re.compile(r"\(([^()]*)\)(?:\s*->\s*([\w\s,]*))?")


def in_plan(before: str, declared: dict[str, str]) -> list[Choice]:
    """Also `use plan`, which ends where the body of a plan begins."""
    head, opened, body = before.partition("{")
    if not opened:
        if re.search(r"\bover\s*\(?[\w\s,]*$", head):
            return named(declared, "axis")
        return [Choice(c, "option") for c in CONTRACTS] if re.search(r":\s*$", head) else [Choice("over", "keyword")]
    if re.search(r"[{}]\s*$", before) or body.rpartition("\n")[2].strip() == "":
        return [Choice(word, "keyword") for word in _STEPS]
    tensor = (re.search(r"\(\s*(\w+)", head) or [None, ""])[1]
    if re.search(r"\b(?:send|fetch|into)\s+$", body):
        return [Choice(f"{tensor}[rank]", "value"), Choice(tensor, "value")] if tensor else []
    axes = [c.text for c in named(declared, "axis")]
    numbers = ["rank", *axes, *(f"{a}_rank" for a in axes), *dict.fromkeys(_BOUND.findall(body))]
    words = ["to", "from", "into", "adding", "part", "of", "with", "in", "range", "mod"]
    return [
        *(Choice(n, "value") for n in numbers), *named(declared, "dim"),
        *(Choice(f, "function", f"{f}({', '.join('ab'[:count])})") for f, count in FUNCTIONS.items()),
        *(Choice(w, "keyword") for w in words),
    ]  # fmt: skip


def in_kernel(before: str) -> list[Choice]:
    head, opened, _ = before.partition("{")
    if not opened:
        return []
    lists = _LISTS.search(head)
    tensors = re.findall(r"\w+", " ".join(part or "" for part in lists.groups())) if lists else []
    return [*(Choice(t, "value") for t in tensors), *(Choice(b, "keyword") for b in _BINDINGS)]


def in_gradient(index: Index, before: str, declared: dict[str, str]) -> list[Choice]:
    if re.fullmatch(r"\s*gradient\s+", before):
        return named(declared, "op")
    if re.search(r"\bas\s+$", before):
        return [Choice(d.value, "dtype") for d in BUILT_DTYPES]
    if not re.search(r"\bsaves\s+[\w\s,]*$", before):
        return [Choice("saves", "keyword"), Choice("with", "keyword")]
    op = (re.match(r"\s*gradient\s+(\w+)", before) or [None, ""])[1]
    for segment in index.segments:
        item = item_of(segment.text) if segment.text.startswith("op") else None
        if isinstance(item, nodes.Op) and item.name.text == op:
            bound = [t.text for s in item.body for t in s.targets]
            return [*(Choice(p.name.text, "tensor") for p in item.params), *(Choice(b, "value") for b in bound)]
    return []
