"""The proof: enumerates a plan's accesses and orders. Not a theorem prover, and it says nothing of other world sizes.

    prove(plan)             every check below, in this order; a fault of form or a deadlock ends it
    structure.py            indices, boxes, who gives a signal
    graph.py                order and deadlock
    races.py, order.py      happens-before
    contents.py, atoms.py   coverage
    progress.py             residency

To prove reuse across calls, prove a plan of `slots + 1` calls, and again with the middle calls as small as they can be.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from chunkdsl.check.plans import to_diagnostic
from chunkdsl.check.prove.atoms import Atoms
from chunkdsl.check.prove.contents import Contents
from chunkdsl.check.prove.graph import Graph, refute_cycle
from chunkdsl.check.prove.progress import least_programs, refute_residency, resident
from chunkdsl.check.prove.races import Races
from chunkdsl.check.prove.refutation import Refutation
from chunkdsl.check.prove.structure import check_structure
from chunkdsl.plan.plan import Plan

__all__ = ["Refutation", "least_programs", "prove", "resident", "to_diagnostic"]


def prove(plan: Plan, programs: int | None = None) -> list[Refutation]:
    """Everything wrong with a plan; an empty list is the proof.

    `programs` is how many programs are resident on each rank, the communication programs and one more if left out
    (progress with some number implies it with a larger one).
    """
    with _collector_paused():
        found = check_structure(plan)
        if found:
            return found
        graph = Graph(plan)
        found = refute_cycle(graph)
        if found:
            return found
        atoms = Atoms(plan)
        races = Races(graph, atoms)
        found = races.refutations + Contents(graph, atoms, races.racy).refutations
        return found + refute_residency(graph, least_programs(plan) if programs is None else programs)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A proof makes a million small objects and no cycles; looking for cycles among them takes half of its time."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
