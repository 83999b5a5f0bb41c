"""No entry of the placement table is too strict, and whole programs are sound, by the numpy model of
placement_model.py.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_model import DIMS, LOCAL, SMALL, Ranks, is_sound, lower_ops, same

from chunkdsl.ir.types import Partial, Replicate, Shard
from chunkdsl.lower import placements as table


def too_strict(text, exprs):
    """Refused pairs for which the ranks' own results are the global value under some placement."""
    _, why, _ = lower_ops(text)
    types = {line.split()[1]: parse_type(line.split(" : ")[1]) for line in text.splitlines() if line[:6] == "tensor"}
    found, ranks = [], Ranks((2,))
    for name, expr in exprs.items():
        words = expr.split()
        if len(words) != 3 or not why[name] & PLACEMENT_CODES or words[0] not in types or words[2] not in types:
            continue
        pair = types[words[0]], types[words[2]]
        if any(p == Shard(d) and n == 1 for shape, p in pair for d, n in enumerate(shape)):
            continue  # numpy would broadcast an empty shard of a size-1 dimension; kernels do not
        local = LOCAL[{"+": "add", "*": "mul", "/": "div", "@": "matmul"}[words[1]]]
        once, again = (fitting(local, *pair, ranks) for _ in range(2))
        if once & again:
            found.append(expr)
    return found


def fitting(local, a, b, ranks):
    """Placements under which each rank's `local` of its own arrays is the whole result, for random values."""
    wholes = [ranks.random.integers(1, 4, shape).astype(float) for shape, _ in (a, b)]
    left, right = (ranks.spread(w, [p]) for w, (_, p) in zip(wholes, (a, b), strict=True))
    fits = set()
    with np.errstate(all="ignore"):
        try:
            made, whole = {c: local(left[c], right[c]) for c in ranks.coordinates}, local(*wholes)
        except ValueError:
            return fits
        for p in (Replicate(), Partial(), *(Shard(d) for d in range(whole.ndim))):
            try:
                if same(ranks.gather(made, [p]), whole):
                    fits.add(p)
            except ValueError:
                pass
    return fits


def test_refused_pairs_have_no_sound_result():
    """No entry is too strict. (`swiglu(a, p)`, linear in p, is refused by design and not among the pairs.)"""
    assert too_strict(*SMALL) == []


def test_an_entry_that_is_too_strict_is_found(monkeypatch):
    monkeypatch.setattr(table, "in_result", lambda p, rank, result_rank: p)  # a bias [N @ a] seen as sharded rows
    assert too_strict(*SMALL) != []


PLACEMENT_CODES = {f"CD2{n:02}" for n in range(1, 19)}


def parse_type(text):
    inner = text[text.index("[") + 1 : text.index("]")]
    dims = [d.strip() for d in inner.split(",")] if inner else []
    placement = Partial() if "sum" in text else Replicate()
    for i, d in enumerate(dims):
        if "@" in d:
            placement = Shard(i)
    return [DIMS.get(d.split()[0], 1) for d in dims], placement


# ---- whole programs

LEAVES = ["x", "w", "v", "p", "b", "c", "s", "0.5"]
PROGRAM = """mesh a[4]
dim M = 3..64
dim N = 3..64
tensor x : f32[M @ a, N]
tensor w : f32[N, M]
tensor v : f32[N @ a, M]
tensor p : f32[M, N] sum a
tensor b : f32[N]
tensor c : f32[M @ a, 1]
tensor s : f32[]
"""


def expressions():
    def grow(inner):
        two = st.tuples(inner, st.sampled_from("+-*/@"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        calls = ["all_gather({})", "all_reduce({})", "reduce_scatter({}, M)", "reduce_scatter({}, N)", "gelu({})",
                 "({}).T", "(-{})"]
        one = st.tuples(st.sampled_from(calls), inner).map(lambda t: t[0].format(t[1]))
        return two | one

    return st.recursive(st.sampled_from(LEAVES), grow, max_leaves=5)


SEEDS = ["all_gather(x)", "(all_gather(x) @ w)", "(all_gather(x).T @ p)", "reduce_scatter(p, M)", "(x @ w)",
         "(all_gather(x) @ v.T.T)", "(p @ w)"]


@settings(max_examples=20, deadline=None)
@given(st.lists(expressions(), min_size=20, max_size=20), st.sampled_from(SEEDS), st.integers(2, 4))
def test_accepted_programs_are_sound(exprs, seed, world):
    """Twenty ops a file, each of two statements, the first one's name used in the second."""
    names = "x, w, v, p, b, c, s"
    ops = [f"op o{i}({names}) -> y {{\n h = {seed}\n y = {e.replace('x', 'h', 1)}\n}}" for i, e in enumerate(exprs)]
    made, _, _ = lower_ops(PROGRAM + "\n".join(ops) + "\n")
    ranks = Ranks((world,))
    for name, op in made.items():
        assert is_sound(op, ranks), exprs[int(name[1:])]
