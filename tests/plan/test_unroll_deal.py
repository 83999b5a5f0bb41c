"""The plan of an all_to_all against its definition: element (row, column) of the whole tensor, on its owner, once."""

import numpy as np
import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.plan.plan import Act
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = "mesh tp[4] over nvlink\ndim M = 0..40\ndim R = 11\ndim K = 32\n"
POLICY = "with { chunk = 3 along M, via = ldst, side = %s }"
ONTO_ROWS = HEAD + f"tensor x : bf16[M, R @ tp]\nop f(x) -> y {{ y = all_to_all(x, R -> M) {POLICY} }}\n"
ONTO_COLUMNS = HEAD + f"tensor x : bf16[M @ tp, R]\nop f(x) -> y {{ y = all_to_all(x, M -> R) {POLICY} }}\n"
TILE = "with { chunk = 3 along M, tile = 16x16x16 }"
FROM_COLUMNS = (
    HEAD + "tensor a : bf16[M, K]\ntensor w : bf16[R @ tp, K]\n"
    f"op f(a, w) -> y {{ y = all_to_all(a @ w.T, R -> M) {TILE} }}\n"
)
FROM_ROWS = (
    HEAD + "tensor a : bf16[M @ tp, K]\ntensor w : bf16[R, K]\n"
    f"op f(a, w) -> y {{ y = all_to_all(a @ w.T, M -> R) {TILE} }}\n"
)
SPECS = {
    "rows, push": (ONTO_ROWS % "push", True),
    "rows, pull": (ONTO_ROWS % "pull", True),
    "columns, push": (ONTO_COLUMNS % "push", False),
    "columns, pull": (ONTO_COLUMNS % "pull", False),
    "rows of a product": (FROM_COLUMNS, True),
    "columns of a product": (FROM_ROWS, False),
}


def shard(size, world, rank):
    """First and last + 1 of a ceil-divided shard, as torch.chunk would cut it."""
    each = -(-size // world)
    return min(size, rank * each), min(size, (rank + 1) * each)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("world, rows", ((1, 5), (2, 9), (3, 10), (4, 3), (5, 40), (8, 0), (8, 17)))
def test_every_element_comes_to_its_owner_once_and_from_the_right_place(name, world, rows):
    text, onto_rows = SPECS[name]
    made = check_source(Source("t.chunk", text)).schedule
    (op,) = made.ops
    plan = unroll(made, op, world, [{"M": rows}])
    deal = next(x.deal for n in op.launches for x in (n.destination, *n.moves) if x.deal)
    assert deal.onto == ("rows" if onto_rows else "columns")
    buffer = next(b for b in plan.buffers if b.kind == "symmetric" and not b.name.endswith("_sent"))
    content = {}  # (rank, slot, row, column) -> (row, column) of the whole tensor, as the plan has it
    for task in plan.tasks:
        for a in task.accesses:
            r = a.region
            if a.act is Act.NEED or r.buffer == op.results[0].name:
                continue
            for i, j in np.ndindex(r.row1 - r.row0, r.col1 - r.col0):
                at = r.buffer, r.rank, r.row0 + i, r.col0 + j
                assert at not in content, f"{task.name} writes {at} again"
                if a.act is Act.PUT:
                    content[at] = a.origin[0] + i, a.origin[1] + j
                else:
                    s = a.source
                    content[at] = content[s.buffer, s.rank, s.row0 + i, s.col0 + j]
    for rank in range(world):
        here = {at[2:]: what for at, what in content.items() if at[:2] == (buffer.name, rank)}
        low, high = shard(rows, world, rank) if onto_rows else (0, rows)
        left, right = (0, 11) if onto_rows else shard(11, world, rank)
        wanted = {(i, j) for i in range(low, high) for j in range(left, right)}
        assert set(here.values()) == wanted and len(here) == len(wanted)
        if onto_rows:  # rows and columns lie where a tile looks for them
            assert all(what == (low + i, j) for (i, j), what in here.items())
