"""Routes of two tiers in their woven form are tried too: a number of chunks, each handed on as soon as it has come."""

from chunkdsl.cost import choose_transport
from chunkdsl.cost.choose import choose
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.ir.meshes import bindings
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.pipeline import check_source, settle
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

SPEC = """mesh node[2] over rdma, gpu[4] over nvlink
dim M = 1..8192
tensor x : bf16[M @ (node, gpu), 8192]
tensor w : bf16[2048 @ (node, gpu), 8192]
op f(x, w) -> y { y = all_gather(x, over = (node, gpu)) @ w.T with { fuse_from = alwaysMORE } }
"""


def settled(more=""):
    checked = check_source(Source("f.chunk", SPEC.replace("MORE", more)))
    assert not checked.report.failed
    found = {key: s for (_, key), s in choose(checked.program, checked.schedule).items()}
    settle(checked)
    return found, checked.schedule


def time_of(schedule):
    dims = {"M": 8192} | bindings(schedule.mesh, schedule.world)
    op = schedule.ops[0]
    return ending(simulate(op, unroll(schedule, op, 8, [dims]), machine_for(schedule, op, dims)))


def test_auto_weaves_where_that_is_faster_and_the_module_does_so(monkeypatch):
    found, schedule = settled()
    assert found["route"].shown.startswith("hierarchical(") and isinstance(found["chunk"].value, ChunkCount)
    (moves,) = schedule.ops[0].launches[0].moves
    assert moves.routing.parts((2, 4)) == found["chunk"].value.count > 1
    monkeypatch.setattr(choose_transport, "WOVEN", ())
    unwoven, plain = settled(f", route = {found['route'].shown}")
    assert not isinstance(unwoven["chunk"].value, ChunkCount)
    assert time_of(schedule) < 0.98 * time_of(plain)
