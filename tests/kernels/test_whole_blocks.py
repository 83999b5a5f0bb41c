"""Sizes of which a kernel takes whole blocks: found by running it, held on every rank, kept by the twin."""

import pytest
from kernel_specs import ROOT, checked
from test_every_program import messages

from chunkdsl.render.module import render_module
from chunkdsl.runtime.arguments import Arguments
from chunkdsl.verify.twin import even_sizes

SPEC = """
mesh tp[2]
dim M = 1..32
dim K = {K}
dim N = 40
tensor a : bf16[M, K @ tp]
tensor v : bf16[K @ tp, N]
kernel f(A, B) -> C = "tests/kernels/kernel_zoo_unmasked.py" : product {{
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : [m, n] sum k
    grid = cdiv(m, BM), cdiv(n, BN)
    const BM = 16, BN = 16, BK = 32
}}
op down(a, v) -> y {{ y = reduce_scatter(f(a, v), M) }}
"""


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_a_part_of_a_block_on_a_rank_is_refused():
    """All of K has whole blocks; what each of two ranks holds ends in the middle of one."""
    (found,) = messages(SPEC.format(K=96))["down"]
    assert "kernel_zoo_unmasked.py:15: a load outside the declared shape of A [" in found and " x 48]" in found


def test_whole_blocks_are_found_kept_by_the_twin_and_held_at_run_time():
    made = checked(SPEC.format(K=128))
    assert [d.message for d in made.report.diagnostics] == []
    body = next(n.body for n in made.schedule.ops[0].launches if n.body)
    assert body.whole == (("k", 32),) and even_sizes(body, 32) == {128: 32}
    assert '    WHOLE = ((128, 32, "k of product"), )' in render_module(made.schedule, (2,))


@pytest.mark.parametrize(
    ("world", "said"), [(2, None), (4, None), (3, "rank 0 has 43 of k of product, which takes whole blocks of 32")]
)
def test_ranks_with_parts_of_blocks_run_the_fallback(world, said):
    op = Arguments()
    op.WHOLE, op.world = ((128, 32, "k of product"),), world
    assert op.broken_block() == said
