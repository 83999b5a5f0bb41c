"""Gates on a mesh of two axes: those of a smaller mesh are what a spec that declares it would have."""

import pytest

from chunkdsl.cost.choose import choose
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.pipeline import check_source
from chunkdsl.plan.settled import Gate
from chunkdsl.source import Source

HEAD = """mesh node[{0}] over rdma, gpu[{1}] over nvlink
dim M = 1..4096
tensor x : bf16[M @ (node, gpu), 4096]
"""
BOTH = HEAD + """tensor w : bf16[6144 @ (node, gpu), 4096]
op f(x, w) -> y {{
    y = all_gather(x, over = (node, gpu)) @ w.T
        with {{ route = hierarchical(swizzle, swizzle), place = own_sms(16), chunk = 4 MiB, buffers = 1 }}
}}
"""
INNER = HEAD + """tensor w : bf16[6144 @ gpu, 4096]
op f(x, w) -> y {{ y = all_gather(x, over = gpu) @ w.T with {{ via = copy_engine, route = swizzle, chunk = 4 MiB }} }}
"""
WHOLE = INNER.replace("M @ (node, gpu)", "M @ gpu").replace("4 MiB", "1 MiB")


def gate(text, *mesh):
    checked = check_source(Source("f.chunk", text.format(*mesh)))
    assert not checked.report.failed
    return next(s.value for (_, key), s in choose(checked.program, checked.schedule).items() if key == "fuse_from")


@pytest.mark.parametrize(("text", "smaller"), [(BOTH, [(2, 1), (1, 2), (2, 2)]), (INNER, [(1, 2), (2, 2), (1, 4)])])
def test_every_size_of_the_mesh_has_the_gate_that_it_would_have_if_it_were_declared(text, smaller):
    found = gate(text, 2, 4)
    wanted = {mesh: gate(text, *mesh).fuse_from for mesh in smaller}
    assert {mesh: found.at(mesh) for mesh in smaller} == wanted and found.at((2, 4)) == found.fuse_from
    assert len({*wanted.values(), found.fuse_from}) > 1


def test_an_axis_that_cuts_nothing_does_not_matter():
    found = gate(WHOLE, 2, 4)
    assert {world[0] for world, _ in found.by_world} == {1}
    assert found.at((2, 2)) == found.at((1, 2)) != found.at((2, 4)) == found.fuse_from


def test_the_last_gate_that_a_mesh_reaches_on_both_axes_holds():
    some, more = FuseFrom(8, "M"), FuseFrom(16, "M")
    found = Gate(more, "nccl", (((1, 2), some), ((2, 1), more), ((2, 2), some)))
    worlds = {(1, 1): FuseFrom(0), (1, 4): some, (4, 1): more, (2, 2): some, (3, 3): some}
    assert {world: found.at(world) for world in worlds} == worlds
