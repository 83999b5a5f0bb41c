"""The shadow of a buffer against a slow model that keeps every access to every byte."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.sim.clocks import Clocks, Kind, Stamp
from chunkdsl.sim.shadow import Shadow

ROWS, PITCH, ACTORS = 3, 8, 3


@st.composite
def histories(draw):
    """Accesses (actor, write, kind, box) and hand-overs (from, to) of knowledge."""
    steps = []
    for _ in range(draw(st.integers(1, 14))):
        actor = draw(st.integers(0, ACTORS - 1))
        if draw(st.integers(0, 2)) == 0:
            steps.append((actor, draw(st.integers(0, ACTORS - 1))))
            continue
        itemsize = draw(st.sampled_from([2, 4]))
        r0, c0 = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, PITCH // itemsize - 1)) * itemsize
        r1 = draw(st.integers(r0 + 1, ROWS))
        c1 = draw(st.integers(c0 // itemsize + 1, PITCH // itemsize)) * itemsize
        kind = draw(st.sampled_from([Kind.PLAIN, Kind.PLAIN, Kind.ATOMIC_GPU, Kind.ATOMIC_SYS]))
        steps.append((actor, draw(st.booleans()), kind, (r0, r1, c0, c1), itemsize))
    return steps


@settings(max_examples=100, deadline=None)
@given(histories())
def test_first_race_comes_at_the_same_access(steps):
    clocks = Clocks()
    components = [clocks.component(("actor", i)) for i in range(ACTORS)]
    known = [clocks.fresh() for _ in range(ACTORS)]
    for i, c in enumerate(components):
        known[i][c] = 1
    shadow = Shadow(clocks, ROWS, PITCH, 4)
    history = []  # (actor, time, write, kind, box)
    for step in steps:
        if len(step) == 2:
            known[step[1]] = clocks.join(known[step[1]], known[step[0]])
            known[step[0]][components[step[0]]] += 1
            continue
        actor, write, kind, box, itemsize = step
        now = int(known[actor][components[actor]])
        want = any(
            who != actor and (write or wrote) and known[actor][components[who]] < when and overlap(box, other)
            and not (strong(kind, actor, who) and strong(how, actor, who))
            for who, when, wrote, how, other in history
        )  # fmt: skip
        stamp = clocks.stamp(Stamp(components[actor], now, kind, actor // 2, f"actor {actor}"))
        got = (shadow.write if write else shadow.read)([box], itemsize, known[actor], stamp)
        assert (got is not None) == want
        if want:
            return
        history.append((actor, now, write, kind, box))


def overlap(a, b):
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def strong(kind, a, b):
    return kind is Kind.ATOMIC_SYS or (kind is Kind.ATOMIC_GPU and a // 2 == b // 2)


def test_components_are_found_again_and_clocks_grow():
    clocks = Clocks()
    first = clocks.component(("x", 1))
    old = clocks.fresh()
    second = clocks.component(("x", 2))
    assert clocks.component(("x", 1)) == first != second
    new = clocks.fresh()
    new[second] = 4
    old[first] = 7
    assert clocks.join(old, new).tolist() == [0, 7, 4]
    assert clocks.grown(old).tolist() == [0, 7, 0]
    assert np.array_equal(clocks.join(new, old), [0, 7, 4])
