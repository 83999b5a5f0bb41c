"""A loop over gathered rows, cut into turns: `for start in range(0, T, BN):` becomes

    for chunk_turn in range(0, turns_of(arrivals)):
      chunk_from, chunk_to = await_turn(chunk_turn, 0, T, BN, arrivals)
      for start in range(chunk_from, chunk_to, BN):

in front of a body whose lines stay as they are. All rounds run once, in their order. The wait stands before an inner
loop, not in it, so that the compiler pipelines that loop and cannot move its loads in front of the wait.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from chunkdsl.kernels.source import KernelSource

TURN_MARK = "  # chunk: as its rows arrive"
TURN_NAMES = ("arrivals", "chunk_turn", "chunk_from", "chunk_to")
Edit = tuple[int, int, str]


def turn_edits(
    source: KernelSource, node: ast.For, at: Callable[[int, int], int], arrivals: str = "arrivals",
    deeper: int = 0,
) -> Iterator[Edit]:  # fmt: skip
    """Splices of the loop's head. `at`: offset of (line, column). `arrivals`: what the loop's waits need. `deeper`:
    columns by which its lines are moved to the right."""
    args = [ast.get_source_segment(source.text, a) for a in node.iter.args]
    begin, end, step = ("0", *args, "1") if len(args) == 1 else (*args, "1")[:3]
    inner = " " * (deeper + node.col_offset + (node.body[0].col_offset - node.col_offset) // 2)
    where = at(node.lineno, node.col_offset)
    yield where, where, (
        f"for chunk_turn in range(0, turns_of({arrivals})):{TURN_MARK}\n"
        f"{inner}chunk_from, chunk_to = await_turn(chunk_turn, {begin}, {end}, {step}, {arrivals}){TURN_MARK}\n{inner}"
    )
    places = [(at(a.lineno, a.col_offset), at(a.end_lineno, a.end_col_offset)) for a in node.iter.args]
    names = ("chunk_from", "chunk_to")
    if len(places) == 1:
        yield *places[0], ", ".join(names)
    else:
        for place, name in zip(places, names, strict=False):
            yield *place, name


def loop_at(node: ast.FunctionDef, line: int) -> ast.For:
    return next(n for n in ast.walk(node) if isinstance(n, ast.For) and n.lineno == line)
