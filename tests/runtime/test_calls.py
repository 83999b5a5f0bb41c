"""Calls one after another: epochs, buffers, shards without rows or columns, ranks that never come."""

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.sim.faults import Deadlock
from chunkdsl.sim.log import Write
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

MANY = 20
NEAR = 2**31 - 3
OVER = NEAR + 4 - 2**32  # four calls later


def results(m, parts, rank, rows):
    return m.up(*parts["up"][rank], M=rows), m.down(*parts["down"][rank], M=rows)


def exact(m, parts, rank, rows):
    return m.up.exact(*parts["up"][rank], M=rows), m.down.exact(*parts["down"][rank], M=rows)


@pytest.mark.parametrize("policy", ["buffers = 1", "buffers = 2"])
def test_many_calls_of_changing_sizes(built, ranks, draw, same_bits, policy):
    sizes = (MANY, 1, 0, 33, 2)
    drawn = [draw(rows, 2, seed=rows)[0] for rows in sizes]

    def body(m, machine):
        pairs = list(zip(drawn, sizes, strict=True))
        fused = [results(m, parts, machine.rank, rows) for parts, rows in pairs]
        plain = [exact(m, parts, machine.rank, rows) for parts, rows in pairs]
        m.check()
        equal = [same_bits(a, b) for one, two in zip(fused, plain, strict=True) for a, b in zip(one, two, strict=True)]
        return all(equal), int(m.up.state.local[0]), int(m.down.state.local[0])

    assert ranks(built(policy), body, seed=2) == [(True, len(sizes), len(sizes))] * 2


@pytest.mark.parametrize(
    ("policy", "near", "up", "down"),  # the policy is that of `up`
    [("buffers = 1", NEAR, OVER, OVER), ("buffers = 2", NEAR, OVER, OVER), ("buffers = 3", NEAR, OVER, OVER),
     ("buffers = 3", -2, 6, 2)],
)  # fmt: skip
def test_epochs_run_over_the_largest_integer(built, ranks, draw, same_bits, policy, near, up, down):
    """Flags are compared by a signed difference, so the call after 2**31 - 1 is not 2**32 calls late. With three
    buffers the call after -1 has a number that leaves neighbours in neighbouring slots."""
    parts, _ = draw(MANY, 2)

    def body(m, machine):
        machine.barrier()
        for op in (m.up, m.down):
            for name, words in vars(op).items():
                if name.endswith(("closed", "_arrived", "_ready", "_done")) and words is not None:
                    getattr(words, "local", words).fill_(near)
            op.state.local[0] = near
        machine.barrier()
        fused = [results(m, parts, machine.rank, MANY) for _ in range(4)]
        m.check()
        wanted = exact(m, parts, machine.rank, MANY)
        m.check()
        good = all(same_bits(a, b) for pair in fused for a, b in zip(pair, wanted, strict=True))
        return good, int(m.up.state.local[0]), int(m.down.state.local[0])

    assert ranks(built(policy), body) == [(True, up, down)] * 2


def test_a_call_without_rows_gives_empty_results_and_takes_part(two_ops, ranks, draw):
    parts, _ = draw(0, 3)

    def body(m, machine):
        shapes = [tuple(t.shape) for t in results(m, parts, machine.rank, 0)]
        m.check()
        return shapes, int(m.up.state.local[0]), tuple(m.up.fallback(*parts["up"][machine.rank], M=0).shape)

    assert ranks(two_ops, body, world=3) == [([(0, 16), (0, 32)], 1, (0, 16))] * 3


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_ranks_without_rows_take_part(two_ops, ranks, draw, same_bits, rows):
    parts, whole = draw(rows, 3)

    def body(m, machine):
        fused = results(m, parts, machine.rank, rows)
        wanted = exact(m, parts, machine.rank, rows)
        m.check()
        return all(map(same_bits, fused, wanted)), fused

    done = ranks(two_ops, body, world=3)
    assert all(good for good, _ in done)
    y, z = torch.cat([r[0] for _, r in done], 1), torch.cat([r[1] for _, r in done])
    assert (y.double() - whole["x"].double() @ whole["w"].double().T).abs().max() < 0.02
    assert (z.double() - whole["a"].double() @ whole["v"].double().T).abs().max() < 0.04


NARROW = """mesh tp[5] over nvlink
dim M = 1..64
dim H = 32
dim F = 16
tensor x : f32[M @ tp, H]
tensor w : f32[F @ tp, H]
tensor a : f32[M, F @ tp]
tensor v : f32[H, F @ tp]
op up(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, chunk = 8 along M, via = ldst } }
op down(a, v) -> z { z = reduce_scatter(a @ v.T, M) with { tile = 16x16x16, chunk = 8 along M, via = ldst } }
"""


def test_a_rank_without_columns_takes_part(tmp_path):
    """16 columns over 5 ranks are 4, 4, 4, 4 and none: no outputs of one product, no addends of the other."""
    checked = check_source(Source("narrow.chunk", NARROW))
    assert not checked.report.failed, checked.report.diagnostics
    module = load(render_module(checked.schedule, (5,)), tmp_path, "narrow").Narrow
    g = torch.Generator().manual_seed(0)
    x, w, a, v = (torch.randint(-3, 4, s, generator=g).float() for s in ((9, 32), (16, 32), (9, 16), (32, 16)))

    def host(machine):
        r = machine.rank
        m = module(machine=machine)
        assert m.up.why_not is None and m.down.why_not is None, (m.up.why_not, m.down.why_not)
        y = m.up(cut(x, 0, 5, r), cut(w, 0, 5, r), M=9)
        z = m.down(cut(a, 1, 5, r), cut(v, 1, 5, r), M=9)
        m.check()
        return y, z

    done = World(5).run(host)
    assert done[4][0].shape == (9, 0)
    assert torch.equal(torch.cat([y for y, _ in done], 1), x @ w.T)
    assert torch.equal(torch.cat([z for _, z in done]), a @ v.T)


# ---- inputs produced in place


def copies(machine, name):
    """Stores to the buffer by the kernel that stages this rank's shard, in the last call."""
    trails = machine._world.log.of(rank=machine.rank, call=machine.call, label="stage_shard")
    return sum(isinstance(e, Write) and e.at.buffer == name for t in trails for e in t.events)


def test_an_input_produced_in_place_is_not_copied_and_gives_the_same_bits(two_ops, ranks, draw, same_bits):
    parts, _ = draw(MANY, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        plain = m.up(x, w, M=MANY)
        m.check()
        copied = copies(machine, "up_x_gathered")
        place = m.up.buffer("x", tuple(x.shape))
        place.copy_(x)
        fused = m.up(place, w, M=MANY)
        m.check()
        return same_bits(plain, fused), copied > 0, copies(machine, "up_x_gathered")

    assert ranks(two_ops, body, simulator={"log": True}) == [(True, True, 0)] * 2


def test_a_ragged_input_is_produced_in_place_with_the_size_given(two_ops, ranks, draw, same_bits):
    parts, _ = draw(19, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        plain = m.up(x, w, M=19)
        m.check()
        place = m.up.buffer("x", tuple(x.shape), M=19)
        place.copy_(x)
        fused = m.up(place, w, M=19)
        m.check()
        return same_bits(plain, fused), copies(machine, "up_x_gathered")

    assert ranks(two_ops, body, simulator={"log": True}) == [(True, 0)] * 2


def test_a_part_of_the_buffer_that_is_elsewhere_is_moved_out_first(two_ops, ranks, draw, same_bits):
    """The view was asked for one size, the call has another: the rows do not lie where the call wants them."""
    parts, _ = draw(8, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        plain = m.up(x, w, M=8)
        m.check()
        place = m.up.buffer("x", tuple(x.shape), M=64)
        place.copy_(x)
        fused = m.up(place, w, M=8)
        m.check()
        return same_bits(plain, fused)

    assert all(ranks(two_ops, body))


def test_a_buffer_is_refused_where_nothing_can_be_produced_in_place(two_ops, built, ranks):
    def single(m, machine):
        with pytest.raises(ValueError, match="w is not gathered"):
            m.up.buffer("w", (24, 32))
        return True

    def double(m, machine):
        with pytest.raises(ValueError, match=r"x alternates between buffers \(write buffers = 1\)"):
            m.up.buffer("x", (10, 32))
        return True

    assert all(ranks(two_ops, single)) and all(ranks(built("buffers = 2"), double))


# ---- a rank that never comes


def lonely(module, parts, machine, op, rows):
    """Rank 1 builds its instance and never calls; the others call and find out."""
    m = module(machine=machine)
    if machine.rank == 1:
        return None
    getattr(m, op)(*parts[op][machine.rank], M=rows)
    with pytest.raises(RuntimeError, match="is dead") as first:
        m.check()
    with pytest.raises(RuntimeError, match="is dead"):
        getattr(m, op)(*parts[op][machine.rank], M=rows)
    with pytest.raises(RuntimeError, match="is dead"):
        getattr(m, op).exact(*parts[op][machine.rank], M=rows)
    return str(first.value)


@pytest.mark.parametrize("op", ["up", "down"])
def test_a_wait_that_runs_out_names_site_word_and_call(two_ops, draw, op):
    parts, _ = draw(MANY, 3)
    world = World(3, expire=True)
    told = world.run(lambda machine: lonely(two_ops, parts, machine, op, MANY))
    said = [t for t in told if t]
    assert len(said) == 2
    assert any("two_ops.chunk:" in t and "call 1" in t and "word" in t for t in said), said
    for text in said:
        assert text.startswith(f"{op} is dead on rank ") and "; ranks [1] have not begun this call" in text


def test_without_a_deadline_the_same_ranks_deadlock(two_ops, draw):
    parts, _ = draw(MANY, 3)
    with pytest.raises(Deadlock):
        World(3).run(lambda machine: lonely(two_ops, parts, machine, "up", MANY))


def test_the_other_op_of_a_dead_instance_still_works(two_ops, draw):
    """Each op has its own flags; `check` of the instance names the dead one."""
    parts, _ = draw(MANY, 2)

    def host(machine):
        m = two_ops(machine=machine)
        if machine.rank == 0:
            m.up(*parts["up"][0], M=MANY)
            machine.synchronize()
        machine.barrier()
        m.down(*parts["down"][machine.rank], M=MANY)
        m.down.machine.synchronize()
        m.down.check()
        if machine.rank == 1:  # it has waited for nothing yet, so nothing has told its host
            m.up(*parts["up"][1], M=MANY)
        with pytest.raises(RuntimeError, match="up is dead"):
            m.check()
        with pytest.raises(RuntimeError, match="up is dead"):
            m.up(*parts["up"][machine.rank], M=MANY)
        with pytest.raises(RuntimeError, match="up is dead"):
            m.close()
        return "told"

    assert World(2, expire=True).run(host) == ["told"] * 2
