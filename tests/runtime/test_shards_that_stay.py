"""Gathers by copy engine whose own shard stays where the caller has it: which do, bits, other tensors in calls that are
played again, and that nothing is staged or waited for."""

import pytest
import torch

from chunkdsl.check.prove import prove
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import render_module
from chunkdsl.sim.log import Write
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

HEAD = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim F = 96
tensor x : bf16[M @ tp, H]
tensor q : bf16[M @ zigzag(tp), H]
tensor w : bf16[F @ tp, H]
tensor u : bf16[F @ tp, H]
tensor v : bf16[H, F @ tp]
policy small { tile = 16x16x16, chunk = 8 along M }
policy tiles { tile = 16x16x16 }
policy cut { chunk = 8 along M }
"""
MLP = """op mlp(x, w, u, v) -> z {
    g = all_gather(x) with cut
    a = g @ w.T with tiles
    b = silu(g @ u.T) * a with tiles
    z = reduce_scatter(b @ v.T, M) with small { buffers = 1 }
}
"""
UP = "op up(x, w) -> y { y = all_gather(x) @ w.T with small { %s } }\n"
DECLARED = "tensor r : bf16[M, H]\n"


def schedule(text):
    checked = check_source(Source("stays.chunk", HEAD + text))
    assert not checked.report.failed, checked.report.diagnostics
    return checked.schedule


def stays(text):
    (op,) = schedule(text).ops
    staged = {n.staging.buffer: n.staging for n in op.launches if n.staging}
    for buffer, source in op.stays.items():
        readers = [n.a for n in op.launches if n.a and n.a.source == buffer]
        assert readers and {(o.role, o.layout) for o in readers} == {("a", "padded")}
        assert staged[buffer].source == source and staged[buffer].ready is None
    return bool(op.stays)


FITS = {
    "by rule": UP % "",
    "as written": UP % "via = copy_engine, side = push, route = direct, order = local_first",
    "two products in one statement": "op f(x, w, u) -> y { g = all_gather(x) with cut\n"
    "    y = swiglu(g @ w.T, g @ u.T) with tiles }\n",
    "two statements and a reduction": MLP,
    "rows that lie apart": UP.replace("x", "q") % "",
}
STAGED = {
    "pulled": UP % "side = pull",
    "by programs": UP % "via = ldst, place = own_sms(2), buffers = 1",
    "a result too": "op f(x, w) -> y, g { g = all_gather(x) with cut { side = push }\n    y = g @ w.T with tiles }\n",
    "read by a pointwise step too": "op f(x, w) -> y, k { g = all_gather(x) with cut { side = push }\n"
    "    y = g @ w.T with tiles\n    k = relu(g) }\n",
    "computed": "op f(x, w) -> y { y = all_gather(relu(x)) @ w.T with small { side = push } }\n",
    "by the library": UP.replace("small { %s }", "{ compute = library, side = push }"),
    "by the library where it is written again": "op f(x, w, u) -> y, k {\n"
    "    y = all_gather(x) @ w.T with tiles { side = push }\n"
    "    k = all_gather(x) @ u.T with { side = push, compute = library } }\n",
    "contracted over its rows": DECLARED + "op f(x, r) -> y { y = all_gather(x).T @ r with small { side = push } }\n",
    "on the right": "op f(x, w) -> y { y = w @ all_gather(x).T with small { side = push } }\n",
}


@pytest.mark.parametrize("text", FITS.values(), ids=FITS)
def test_a_shard_stays_where_only_products_read_it(text):
    assert stays(text)


@pytest.mark.parametrize("text", STAGED.values(), ids=STAGED)
def test_a_shard_is_staged_where_anything_else_reads_it(text):
    assert not stays(text)


@pytest.mark.parametrize("world", [2, 3, 8])
def test_calls_of_all_sizes_are_proven(world):
    made = schedule(MLP)
    for sizes in ((64, 64, 64), (64, 0, 64), (5, 64, 1)):
        plan = unroll(made, made.ops[0], world, [{"M": m} for m in sizes], {"M": 64})
        assert prove(plan) == []
        assert not any(t.kind == "stage" or "entry barrier" in t.name for t in plan.tasks)


# ---- on simulated ranks


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    text = render_module(schedule(UP % "" + MLP), (1, 2, 3, 4))
    return load(text, tmp_path_factory.mktemp("stays"), "stays").Stays


def drawn(rows, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = {"x": (rows, 32), "w": (96, 32), "u": (96, 32), "v": (32, 96)}
    return {name: (torch.randn(s, generator=g) * 0.5).bfloat16() for name, s in shapes.items()}


def parts(t, world, r):
    return [cut(t["x"], 0, world, r), cut(t["w"], 0, world, r), cut(t["u"], 0, world, r), cut(t["v"], 1, world, r)]


@pytest.mark.parametrize("world", [2, 3])
def test_each_call_takes_its_own_tensors_also_when_it_is_played_again(module, world, same_bits):
    sizes = (21, 21, 0, 1, 1)
    calls = [drawn(rows, seed) for seed, rows in enumerate(sizes)]

    def body(machine):
        m, good = module(machine=machine), []
        mine = [parts(t, world, machine.rank) for t in calls]
        for op, count in ((m.up, 2), (m.mlp, 4)):
            made = [op(*p[:count], M=rows) for p, rows in zip(mine, sizes, strict=True)]
            assert len(op.tapes) == 3, "all calls can be played again"
            wanted = [op.exact(*p[:count], M=rows) for p, rows in zip(mine, sizes, strict=True)]
            m.check()
            good += map(same_bits, made, wanted)
        staged = machine._world.log.of(rank=machine.rank, label="stage_shard")
        puts = {e.at.buffer for t in staged if t.origin.call for e in t.events if isinstance(e, Write)}
        return all(good), puts

    assert World(world, seed=world, log=True, races=True).run(body) == [(True, set())] * world


def test_a_place_to_produce_it_in_is_ordinary_memory(module, same_bits):
    def body(machine):
        m = module(machine=machine)
        x, w, *_ = parts(drawn(20, 1), 2, machine.rank)
        place = m.up.buffer("x", x.shape).copy_(x)
        made, wanted = m.up(place, w, M=20), m.up.exact(x, w, M=20)
        m.check()
        inside = m.up._up_x_gathered.local
        low = inside.data_ptr()
        return same_bits(made, wanted), low <= place.data_ptr() < low + inside.nbytes

    assert World(2).run(body) == [(True, False)] * 2
