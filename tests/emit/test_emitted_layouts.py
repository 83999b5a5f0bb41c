"""Zigzag and cyclic shards, emitted, on simulated ranks: bits of `exact`, float64, conformance with the plan, races."""

from types import SimpleNamespace

import pytest
import torch
from emitted import GATHER, SCATTER, SMALL, built, failures, run
from torch.distributed.tensor import Shard

from chunkdsl.check.worlds import prove_op
from chunkdsl.sim.world import World
from chunkdsl.verify.inputs import draw, join

ZIGZAG, CYCLIC = "zigzag(tp)", "cyclic(tp, 16)"
ENGINE = "via = copy_engine, route = swizzle, side = pull, buffers = 1"
BOTH = GATHER.partition("op f")[0].replace("w : {t}[F @ tp", "w : {t}[F") + (
    "tensor r : {t}[M @ tp, F]\ntensor s : {t}[F] sum tp\n"
    "op f(x, w, r, s) -> y {{ y = reduce_scatter((all_gather(x) @ w.T) * s, M @ tp) + r with {{ {p} }} }}\n"
)
MLP = GATHER.partition("op f")[0].replace("H = 48", "H = 16").replace("F = 96", "F = 128") + (
    "tensor v : {t}[H, F @ tp]\ntensor c : {t}[M, 1]\n"
    "op f(x, w, v, c) -> y, h {{\n    h = relu(all_gather(x) @ w.T) + c with {{ " + SMALL + ENGINE + " }}\n"
    "    y = reduce_scatter(h @ v.T, M @ tp) + x with {{ {p} }}\n}}\n"
)
PLAN = GATHER + "plan p(t) : all_gather over tp {{\n    for i in range(tp - 1) {{\n"
PLAN += "        send t[(rank - i) mod tp] part 0 of 2 to (rank + 1) mod tp\n"
PLAN += "        send t[(rank + i) mod tp] part 1 of 2 to (rank - 1) mod tp\n    }}\n}}\n"
STATS = GATHER.partition("op f")[0].replace("F @ tp", "M @ tp").replace("H]\ntensor w", "H]\ntensor z") + (
    "op f(x, z) -> y {{ y = x.T @ z with {{ {p} }} }}\n"
)


def placed(text, layout, policy, chunk=SMALL):
    """A spec with the rows of its sharded tensors, and of its scattered sums, in a layout."""
    text = text.replace("M @ tp", f"M @ {layout}").replace("x @ w.T, M)", f"x @ w.T, M @ {layout})")
    return text.format(t="bf16", p=chunk + policy)


CASES = {
    "gather by copy engine": (GATHER, ENGINE),
    "gather by tma, ring": (GATHER, "via = tma, route = ring, side = push, place = co_located, buffers = 2"),
    "gather along a plan": (PLAN, "route = p, via = ldst, place = own_sms(1), buffers = 1"),
    "sums stored by the tiles": (SCATTER, "via = ldst, route = swizzle, side = push, place = co_located, buffers = 2"),
    "sums along a ring": (SCATTER, "via = ldst, route = ring, place = own_sms(1), buffers = 2"),
    "gathered and scattered by one product": (BOTH, "via = ldst, place = own_sms(1), buffers = 2"),
}
CHUNKS = {"gather along a plan": "tile = 16x16x16, chunk = 4 per shard, "}


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_a_transport_carries_shards_that_lie_apart(number):
    name = list(CASES)[number]
    text = placed(CASES[name][0], (ZIGZAG, CYCLIC)[number % 2], CASES[name][1], CHUNKS.get(name, SMALL))
    # 37 rows: blocks of 10, 7 or 5, the last one short (zigzag), or a third block of 5 rows (cyclic).
    world, sizes = (2, 3, 3, 4, 2, 3)[number], (37,) if number else (37, 0, 2)
    assert failures(run(text, world, sizes, number % 4, pointers=number % 3 == 0)) == []


def test_a_block_of_a_network_keeps_its_sequence_on_8_ranks():
    text = placed(MLP, ZIGZAG, "via = ldst, route = swizzle, place = co_located, buffers = 1")
    assert failures(run(text, 8, (53,), seed=1)) == []  # blocks of 4: the late blocks of ranks 0 and 1 are empty


def test_a_product_over_rows_of_one_layout():
    text = placed(STATS, ZIGZAG, "tile = 16x16x16", "").replace("M = 0..64", "M = 0..64 step 8")
    assert failures(run(text, 3, (56, 8), 2)) == []


def test_gradients_keep_the_layout():
    """A gathered x has its gradient scattered to the rows that it holds; weights sum over rows of one layout."""
    text = GATHER.partition("op f")[0].format(t="bf16") + (
        "tensor v : bf16[H, F @ tp]\nop f(x, w, v) -> y {\n    h = all_gather(x) @ w.T\n"
        "    y = reduce_scatter(relu(h) @ v.T, M @ tp)\n}\ngradient f -> dx, dw, dv saves x, h\n"
    )
    program, schedule, _, _ = built(text.replace("M @ tp", f"M @ {ZIGZAG}").replace("M = 0..64", "M = 0..64 step 8"))
    types = {name: str(v.type.placements[0]) for op in program.ops for name, v in op.results}
    assert (types["dx"], types["dw"], types["dv"]) == ("Shard(0, zigzag)", "Shard(0)", "Shard(1)")
    assert [v.refutations for op in schedule.ops for w in (2, 4) for v in [prove_op(schedule, op, w)]] == [()] * 6


@pytest.mark.parametrize("layout", [ZIGZAG, CYCLIC])
def test_the_fallback_knows_the_order(layout):
    """The process group's collectives and the library's product, from shards and to shards that lie apart."""
    text = placed(MLP, layout, "via = ldst, route = swizzle, place = co_located, buffers = 1")
    program, schedule, module, title = built(text)
    x = draw(program.ops[0], schedule.ops[0], {"M": 37}, 2, 5, True)

    def host(machine):
        instance = getattr(module, title)(machine=machine)
        held = x.shards[machine.rank]
        return [f(*held, M=37) for f in (instance.f, instance.f.fallback)]

    results = World(2, seed=0).run(host)
    for i in range(2):
        fused, plain = (join([r[way][i] for r in results], program.ops[0], i, 2) for way in (0, 1))
        assert fused.isfinite().all() and torch.equal(fused, plain)


def test_a_module_says_how_its_tensors_are_placed():
    _, _, module, title = built(placed(GATHER, CYCLIC, ENGINE))
    said = getattr(module, title).placements
    (x,), (w,) = said["x"], said["w"]
    assert (str(x), x.dim, x.layout, x.is_shard(0), x.is_partial()) == (
        "Shard(0, cyclic(16))", 0, "cyclic(16)", True, False)
    assert w == Shard(0) and x != Shard(0) and x == said["x"][0]


def test_produced_in_place_and_refused_as_a_layer():
    """`buffer` is where the shard belongs; weights in a layout have no DTensor."""
    text = placed(GATHER, ZIGZAG, ENGINE).replace("w : bf16[F @ tp", "w : bf16[F @ cyclic(tp, 16)")
    program, schedule, module, title = built(text)
    x = draw(program.ops[0], schedule.ops[0], {"M": 37}, 3, 1, True)

    def host(machine):
        f = getattr(module, title)(machine=machine).f
        shard, w = x.shards[machine.rank]
        place = f.buffer("x", shard.shape, M=37)
        place.copy_(shard)
        with pytest.raises(ValueError, match="no DTensor has the layout of w"):
            f.as_module(["w"])
        with pytest.raises(ValueError, match="no DTensor has the layout of x, w"):
            f(SimpleNamespace(device_mesh=None), w, M=37)
        return f(place, w, M=37), f(shard, w, M=37)

    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in World(3, seed=0).run(host))
