"""The placement table against numpy (placement_model.py): each accepted operation computes, rank by rank, the value
that it means globally, ragged and empty shards included. Mutants of the table show that a wrong entry is caught.
"""

from __future__ import annotations

import pytest
from placement_model import SMALL, Ranks, is_sound, lower_ops, table_text

from chunkdsl.ir.graph import axes_of
from chunkdsl.ir.types import Partial, Replicate, Shard
from chunkdsl.lower import collectives
from chunkdsl.lower import placements as table
from chunkdsl.lower.placements import Clash

ONE_AXIS = table_text(1)
TWO_AXES = table_text(2, [("M", "N"), ("N", "M"), ("N",)], every=16)


@pytest.mark.parametrize("world", [2, 4])
def test_accepted_operations_are_sound(world):
    ops, _, _ = lower_ops(ONE_AXIS[0])
    ranks = Ranks((world,))
    assert len(ops) > 500
    assert [ONE_AXIS[1][name] for name, op in ops.items() if not is_sound(op, ranks)] == []


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)])
def test_accepted_operations_are_sound_on_two_axes(sizes):
    ops, _, _ = lower_ops(TWO_AXES[0])
    ranks = Ranks(sizes)
    assert len(ops) > 300
    assert [TWO_AXES[1][name] for name, op in ops.items() if not is_sound(op, ranks)] == []


def test_collectives_over_both_axes_are_tried_and_one_that_takes_the_wrong_order_is_caught(monkeypatch):
    text = TWO_AXES[0].split("op o0(")[0]
    types = [line.split()[1] for line in text.splitlines() if line.startswith("tensor t")]
    both = [f"all_gather({t}, over = (a, b))" for t in types]
    both += [f"reduce_scatter({t}, M, over = (a, b))" for t in types]
    spec = text + "".join(f"op o{i}({e.split('(')[1].split(',')[0]}) -> y {{ y = {e} }}\n" for i, e in enumerate(both))
    ops, _, _ = lower_ops(spec)
    flat = [v for op in ops.values() if len(axes_of(v := op.statements[0].value)) == 2]
    assert {v.kind for v in flat} == {"all_gather", "reduce_scatter"}
    assert all(is_sound(op, Ranks((2, 3))) for op in ops.values())
    monkeypatch.setattr(Ranks, "group", swapped(Ranks.group))
    assert not all(is_sound(op, Ranks((2, 3))) for op in ops.values())


def swapped(group):
    """The ranks of both axes taken inner axis outermost."""
    return lambda ranks, c, axes: sorted(group(ranks, c, axes), key=lambda at: at[::-1])


def constant(result, *pattern):
    """A mutant of a table entry: `result` where the placements are of the pattern's kinds, else the old answer."""

    def mutate(old):
        def new(*args):
            if all(isinstance(a, p) for a, p in zip(args, pattern, strict=False)):
                return result(*args) if callable(result) else result
            return old(*args)

        return new

    return mutate


P, R, S = Partial, Replicate, Shard
MUTANTS = {
    "matmul: rows and columns on one axis": ("matmul_axis", constant(lambda a, b: a if a.dim == 0 else P(), S, S)),
    "matmul: contracted on one side": ("matmul_axis", constant(lambda a, b: P() if a.dim else a, S, R)),
    "matmul: contracted on the other side": ("matmul_axis", constant(lambda a, b: b if b.dim else R(), R, S)),
    "matmul: lost addends": ("matmul_axis", constant(lambda a, b: R() if a.dim > b.dim else Clash.UNLIKE, S, S)),
    "matmul: columns become rows": ("matmul_axis", constant(lambda a, b: S(0) if b.dim else Clash.UNLIKE, R, S)),
    "matmul: two Partials": ("matmul_axis", constant(P(), P, P)),
    "matmul: Partial times Shard": ("matmul_axis", constant(P(), P, S)),
    "matmul: Partial taken for Replicate": ("matmul_axis", constant(R(), P, R)),
    "add: bias once per rank": ("add_axis", constant(P(), P, R)),
    "add: bias once per rank, left": ("add_axis", constant(P(), R, P)),
    "add: Partials taken for Replicate": ("add_axis", constant(R(), P, P)),
    "add: Partial plus Shard": ("add_axis", constant(lambda a, b, *h: b, P, S)),
    "mul: two Partials": ("mul_axis", constant(P(), P, P)),
    "mul: Partial times Shard": ("mul_axis", constant(P(), P, S)),
    "mul: Partial taken for Replicate": ("mul_axis", constant(R(), R, P)),
    "div: divisor is Partial": ("div_axis", constant(P(), R, P)),
    "align: Shard and whole": ("align_axis", constant(lambda a, b, *h: a, S, R)),
    "align: whole and Shard": ("align_axis", constant(lambda a, b, *h: b, R, S)),
    "align: two Shards unlike": ("align_axis", constant(lambda a, b, *h: a, S, S)),
    "nonlinear: of Partial": ("nonlinear_axis", constant(P(), P)),
    "swiglu: of Partial": ("swiglu_axis", constant(P(), P, R)),
    "transpose: keeps its dimension": ("transpose_axis", lambda old: lambda t: t),
    "pick: of the sharded dimension": ("pick_axis", lambda old: lambda t: R() if t == S(0) else old(t)),
    "pick: keeps its dimension": ("pick_axis", lambda old: lambda t: t if t != S(0) else old(t)),
    "broadcast: size 1 counts as its own": ("own_extent", lambda old: lambda t, shape: lambda d: True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_table_entry_is_caught(name, monkeypatch):
    function, mutate = MUTANTS[name]
    monkeypatch.setattr(table, function, mutate(getattr(table, function)))
    assert not all_sound(SMALL[0])


def all_sound(text):
    ops, _, _ = lower_ops(text)
    ranks = Ranks((2,))
    return all(is_sound(op, ranks) for op in ops.values())


def test_the_small_table_is_sound():
    assert all_sound(SMALL[0])


@pytest.mark.parametrize(("kind", "taken_for"), [("Partial", (Partial, Replicate)), ("Partial", (Partial, Shard)),
                                                 ("Shard", (Shard, Partial))])
def test_a_collective_of_the_wrong_placement_is_caught(kind, taken_for, monkeypatch):
    monkeypatch.setattr(collectives, kind, taken_for)
    try:
        assert not all_sound(SMALL[0])
    except AttributeError:
        assert kind == "Shard"  # a Partial has no dimension to gather
