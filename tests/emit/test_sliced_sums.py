"""Sums behind a product, whose programs take several tiles at a time where a call has many."""

import pytest
from emitted import REDUCE, SCATTER, built, failures, run

from chunkdsl.runtime.slices import slices_of
from chunkdsl.sim.log import Add
from chunkdsl.sim.machine import SimMachine
from chunkdsl.verify import simulate

LARGE = "tile = 128x64x16, route = swizzle, place = co_located, chunk = "


def spec(text, policy):
    return text.format(t="bf16", p=LARGE + policy).replace("M = 0..64", "M = 0..300").replace("96", "32")


@pytest.fixture(autouse=True)
def one_multiprocessor(monkeypatch):
    """Eight tiles are many for it."""
    begin = SimMachine.__init__

    def made(machine, *given):
        begin(machine, *given)
        machine.sms = 1

    monkeypatch.setattr(SimMachine, "__init__", made)


@pytest.mark.parametrize(
    "tiles, chunks, many",
    [(7, (64,), 1), (8, (64,), 2), (47, (64,), 2), (48, (64,), 4), (48, (96,), 2), (48, (64, 40), 1), (48, (), 4)],
)
def test_the_more_tiles_a_multiprocessor_has_the_more_are_taken_together(tiles, chunks, many):
    assert slices_of(2, 2 * tiles, 16, *chunks) == slices_of(1, tiles, 16, *chunks) == many


def test_a_program_waits_once_for_several_tiles_of_a_large_call(monkeypatch):
    logs, compare = [], simulate.compare
    monkeypatch.setattr(simulate, "compare", lambda log, *more: logs.append(log) or compare(log, *more))
    assert failures(run(spec(REDUCE, "128 along M, algorithm = two_shot"), 2, (262, 70))) == []
    counted = dict.fromkeys(range(3), 0)  # tiles that are done, of `exact` and both calls
    for t in logs[0].trails:
        if t.origin.label == "f_y_sum" and t.origin.rank == 0:
            counted[t.origin.call] += sum(isinstance(e, Add) and e.at.buffer == "f_y_total_tiles" for e in t.events)
    assert (counted[1], counted[2]) == (-(-131 // 32), -(-35 // 16))


def test_tiles_of_several_chunks_are_not_taken_together(monkeypatch):
    """A program would wait for chunks that the plan lets its rows do without."""
    assert failures(run(spec(SCATTER, "3 per shard"), 2, (262,))) == []
    forgetful = spec(SCATTER, "3 per  shard")
    monkeypatch.setattr(built(forgetful)[2], "slices_of", lambda sms, tiles, rows, *chunks: slices_of(sms, tiles, rows))
    found = failures(run(forgetful, 2, (262,)))
    assert any("which the plan does not ask for" in f for f in found), found
