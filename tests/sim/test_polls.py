"""Who polls sleeps until one of its own words changes, and then wakes."""

import pytest
import torch

from chunkdsl.sim import Deadlock, World
from chunkdsl.sim.changes import Changes
from chunkdsl.sim.faults import Race

HERE, THERE = 64, 128  # bases of two buffers


def test_what_changes_is_seen_by_those_who_poll_it():
    changes = Changes()
    word, other, block = (HERE, 8, False), (HERE, 12, False), (HERE, 0, True)
    assert [changes.last(key) for key in (word, other, block)] == [0, 0, 0]
    changes.word(HERE, 8)
    assert [changes.last(key) for key in (word, other, block)] == [1, 0, 1]
    changes.word(THERE, 8)
    assert [changes.last(key) for key in (word, other, block)] == [1, 0, 1]
    changes.buffer(HERE)
    assert [changes.last(key) for key in (word, other, block)] == [3, 3, 3] and changes.count == 3


def steps(module, word):
    """Steps of a run in which a program waits for `word`, and another counts word 0 to 200 and then sets word 1."""

    def host(machine):
        flags = machine.zeros("flags", (2,), torch.int32)
        machine.launch(k.polled_counter, 2, dict(flags=flags, word=word, count=200), {}, 4, 1)
        machine.synchronize()
        return flags.tolist()

    k, world = module("small_kernels"), World(1, policy="round-robin")
    assert world.run(host) == [[200, 200]]
    return world.steps


def test_changes_of_other_words_wake_nobody(module):
    quiet, woken = steps(module, word=1), steps(module, word=0)
    assert quiet < 220 < 380 < woken, "a step for each count; of who polls word 0, another"


def test_a_word_of_an_earlier_loop_keeps_nobody_awake(module):
    """Program 1 has seen word 0 and waits for word 1 in vain, while word 0 has changed once more."""

    def host(machine):
        flags = machine.zeros("flags", (2,), torch.int32)
        machine.launch(k.polled_in_turns, 2, dict(flags=flags), {}, 4, 1)
        machine.synchronize()

    k = module("small_kernels")
    with pytest.raises(Deadlock, match="nothing changes"):
        World(1, policy="last-first", max_steps=1000).run(host)


@pytest.mark.parametrize("seed", range(6))
def test_a_second_look_behind_a_release_is_an_access(module, seed):
    """Nothing has changed at its place, and who heard the release may write there: a race in any order."""

    def host(machine):
        block, flag = machine.zeros("block", (16,), torch.int32), machine.zeros("flag", (1,), torch.int32)
        machine.launch(k.looked_at_again, 2, dict(block=block, flag=flag), {}, 4, 1)
        machine.synchronize()

    k = module("small_kernels")
    with pytest.raises(Race):
        World(1, seed=seed).run(host)
