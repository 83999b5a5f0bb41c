"""The rule for what the language has and this version cannot build yet: refused at its place, never ignored."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.source import Span


@rule("CD290", "not-built-yet")
def not_built_yet(what: str, span: Span, instead: str) -> Finding:
    """A construct that the language has and this version of the compiler does not build yet.

    It parses, so that an editor helps with it, and it is refused here, once, at its place: accepting it and doing
    something else would be worse. What depends on it gets no further finding. Not built yet: meshes of three axes;
    `attention`, `softmax`, `scaled_matmul`, `dispatch`, `grouped_matmul`, `combine`;
    fp8, i8 and bool tensors as operands; the layout ragged; `inout` outside small
    all-reduces;
    some policy values (`reduce = any_order`, `order = given`, and the key `keep`).

    Fails:
        mesh tp[8]
        dim M = 1..4096
        tensor p : bf16[M, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { reduce = any_order } }

    Mended:
        mesh tp[8]
        dim M = 1..4096
        tensor p : bf16[M, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { reduce = fixed } }
    """
    return Finding(f"{what} is not built yet", span, "the language has it, this version cannot build it", help=instead)
