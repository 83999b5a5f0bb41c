"""Who computes a product, settled elsewhere than in the spec: the op is what it would be if the spec said so."""

from dataclasses import replace

from chunkdsl.diagnostics import Report
from chunkdsl.ir.policy import ChunkBytes
from chunkdsl.lower.computed import write_computes
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.schedule import schedule_op
from chunkdsl.pipeline import check_source
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 4096]
tensor w : bf16[8192 @ tp, 4096]
tensor v : bf16[4096, 8192 @ tp]
op mlp(x, w, v) -> y {
    h = gelu(all_gather(x) @ w.T)
    y = reduce_scatter(h @ v.T, M)%s
}
"""


def program(text=""):
    checked = check_source(Source("s.chunk", SPEC % text))
    assert not checked.report.failed
    return checked.program


def by_kind(op, kind):
    return [v for v in values_of(op) if v.kind == kind]


def test_nothing_settled_leaves_the_op_as_it_is():
    made = program()
    (op,) = made.ops
    settled = Settlement({(by_kind(op, "matmul")[0], "tile"): Settled((128, 128, 64), "", "")})
    assert write_computes(op, made, settled) == (op, made, settled)


def test_what_reads_the_product_is_new_and_what_was_settled_goes_over():
    made = program()
    (op,) = made.ops
    gather, scatter = by_kind(op, "all_gather")[0], by_kind(op, "reduce_scatter")[0]
    last = scatter.args[0]
    keys = {(last, "compute"): "library", (scatter, "chunk"): ChunkBytes(2 << 20), (gather, "chunk"): ChunkBytes(1024)}
    settled = Settlement({where: Settled(value, "", "") for where, value in {**keys, (op, "fuse_from"): None}.items()})
    new, inside, moved = write_computes(op, made, settled)
    other, same = by_kind(new, "reduce_scatter")[0], by_kind(new, "all_gather")[0]
    assert other is not scatter and other.args[0].policy == replace(last.policy, compute="library") and same is gather
    assert [p.policy.compute for p in by_kind(new, "matmul") if p is not other.args[0]] == [None]
    assert new.results[0][1] is other and inside.ops == (new,) and made.ops == (op,)
    assert moved[other, "chunk"].value == ChunkBytes(2 << 20) and moved[gather, "chunk"].value == ChunkBytes(1024)
    assert (new, "fuse_from") in moved and len(moved) == len(settled) and (scatter, "chunk") not in moved


def test_the_schedule_is_that_of_a_spec_that_says_so_with_the_reason():
    made, written = program(), program(" with { compute = generated }")
    (op,), report = made.ops, Report(made.source)
    product = by_kind(op, "reduce_scatter")[0].args[0]
    settled = Settlement({(product, "compute"): Settled("generated", "generated", "tuned: it is faster")})
    found = schedule_op(op, made, report, set(), settled)
    wanted = schedule_op(written.ops[0], written, report, set())
    assert not report.failed and found.choices[-1].why == "tuned: it is faster"
    assert replace(found, choices=(), launches=()) == replace(wanted, choices=(), launches=())
    assert [n.name for n in found.launches] == [n.name for n in wanted.launches]
