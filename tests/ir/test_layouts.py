"""Layouts of shards: which element is where. Held against every size and number of ranks, and against broken ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.ir.layouts import CONTIGUOUS, Contiguous, Cyclic, Zigzag
from chunkdsl.runtime import layouts as runtime

LAYOUTS = (CONTIGUOUS, Zigzag(), Cyclic(1), Cyclic(3), Cyclic(16), Cyclic(128))
SMALL = [(size, world) for world in (*range(1, 9), 16) for size in (*range(0, 4 * world + 3), 97, 128, 385)]


def fault(layout, size, world):
    """What is wrong with a layout for one size and number of ranks, or ""."""
    nominal, seen = layout.shard(size, world), []
    for rank in range(world):
        held = layout.held(size, world, rank)
        mine = [layout.element(size, world, rank, i) for i in range(held)]
        if held > nominal:
            return f"rank {rank} holds {held}, more than the nominal {nominal}"
        if mine != sorted(mine):
            return f"rank {rank} does not hold ascending elements"
        if [layout.place(size, world, e) for e in mine] != [(rank, i) for i in range(held)]:
            return f"place is not the inverse of element on rank {rank}"
        seen += mine
        for first, end in {(0, held), (held // 3, held), (1, held - 1), (held, held)}:
            flat = [(i, at + i - low) for low, at, n in layout.runs(size, world, rank, first, end)
                    for i in range(low, low + n)]
            if flat != [(i, mine[i]) for i in range(first, end)]:
                return f"runs of {first}..{end} on rank {rank} are not its elements"
    return "" if sorted(seen) == list(range(size)) else "not every element is held once"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: str(x))
def test_every_element_is_on_one_rank_once(layout):
    assert [(s, w, found) for s, w in SMALL if (found := fault(layout, s, w))] == []


@given(st.integers(0, 5000), st.integers(1, 64), st.sampled_from((Zigzag(), Cyclic(16), Cyclic(129))))
@settings(max_examples=30, deadline=None)
def test_of_any_size_on_any_number_of_ranks(size, world, layout):
    assert fault(layout, size, world) == ""


class WrongHalves(Zigzag):
    """The late block comes first."""

    def element(self, size, world, rank, local):
        half = self.half(size, world)
        return super().element(size, world, rank, local + half if local < half else local - half)


class OffByOneBlock(Cyclic):
    def element(self, size, world, rank, local):
        return super().element(size, world, rank, local) + self.block


class WrongOwner(Zigzag):
    """The late block goes to the next rank."""

    def held(self, size, world, rank):
        half = self.half(size, world)
        return sum(max(0, min(half, size - b * half)) for b in (rank, 2 * world - 1 - (rank + 1) % world))


class TooSmall(Zigzag):
    def shard(self, size, world):
        return Contiguous().shard(size, world) - (size > world)


class RunsTooLong(Cyclic):
    def runs(self, size, world, rank, first, end):
        if first < end:
            yield first, self.element(size, world, rank, first), end - first


@pytest.mark.parametrize("broken", [WrongHalves(), OffByOneBlock(16), WrongOwner(), TooSmall(), RunsTooLong(16)],
                         ids=lambda x: type(x).__name__)
def test_a_broken_layout_is_found_out(broken):
    assert any(fault(broken, s, w) for s, w in SMALL)


def test_the_example_of_the_language_reference():
    zigzag, cyclic = Zigzag(), Cyclic(2)
    assert [[zigzag.element(16, 4, r, i) for i in range(4)] for r in (0, 3)] == [[0, 1, 14, 15], [6, 7, 8, 9]]
    assert [cyclic.held(11, 2, r) for r in range(2)] == [6, 5]
    assert [[cyclic.element(11, 2, r, i) for i in range(5)] for r in range(2)] == [[0, 1, 4, 5, 8], [2, 3, 6, 7, 10]]
    assert [zigzag.held(5, 4, r) for r in range(4)] == [1, 1, 1, 2]  # blocks of one: 5, 6 and 7 are empty


def test_zigzag_balances_causal_attention():
    """Token t attends to t + 1 tokens: with whole blocks all ranks have the same work, contiguous shards do not."""
    work = {layout: [sum(layout.element(64, 4, r, i) + 1 for i in range(16)) for r in range(4)]
            for layout in (Zigzag(), CONTIGUOUS)}
    assert len(set(work[Zigzag()])) == 1 and max(work[CONTIGUOUS]) > 6 * min(work[CONTIGUOUS])


@pytest.mark.parametrize("layout, told", [(Zigzag(), ("zigzag",)), (Cyclic(3), ("cyclic", 3)),
                                          (Cyclic(16), ("cyclic", 16))], ids=str)
def test_a_generated_module_cuts_alike(layout, told):
    for size, world in SMALL[::3]:
        nominal = runtime.layout_shard(size, world, told)
        assert nominal == layout.shard(size, world)
        assert [runtime.layout_held(size, world, r, told) for r in range(world)] == [
            layout.held(size, world, r) for r in range(world)]
        shard = runtime.LayoutShard(f"Shard(1, {layout})")
        assert [shard.positions(size, world, r).tolist() for r in range(world)] == [
            [layout.element(size, world, r, i) for i in range(layout.held(size, world, r))] for r in range(world)]
        places = runtime.layout_places(size, world, told, "cpu").tolist()
        assert places == [r * nominal + i for r, i in (layout.place(size, world, e) for e in range(size))]
        whole = torch.arange(size * 2).reshape(size, 2)
        shards = runtime.dealt_out(whole, world, told).reshape(world, nominal, 2)
        assert torch.equal(runtime.in_order(shards, size, told), whole)
