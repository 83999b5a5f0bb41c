"""The placement table against numpy: each accepted program computes, rank by rank, the value that it means globally.

A tensor has a global value. A rank holds a slice of it (Shard, nested over axes as DTensor cuts), all of it
(Replicate) or an addend (Partial). An operation is evaluated once on global values and once on each rank's own
arrays; put together as the result's type says, the ranks' results must be the global one. Ragged and empty shards
included. Mutants of the table show that a wrong entry is caught, and a search shows that no entry is too strict.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.diagnostics import Report, Severity
from chunkdsl.ir.graph import axes_of
from chunkdsl.ir.types import Partial, Replicate, Shard, evaluate, shard_size
from chunkdsl.lower import collectives
from chunkdsl.lower import placements as table
from chunkdsl.lower.expressions import File
from chunkdsl.lower.names import collect_names
from chunkdsl.lower.ops import lower_op
from chunkdsl.lower.placements import Clash
from chunkdsl.lower.policies import Policies
from chunkdsl.lower.sizes import Dims
from chunkdsl.lower.tensors import Tensors, lower_mesh
from chunkdsl.source import Source
from chunkdsl.syntax import nodes
from chunkdsl.syntax.parse import parse

DIMS = {"M": 5, "N": 3, "E": 2}


@lru_cache(maxsize=4)
def parsed(text):
    source = Source("t.chunk", text)
    return source, parse(source, Report(source))


def lower_ops(text):
    """Typed ops of a text by name, what else its findings are by op, and the mesh; meshes of two axes are typed too."""
    source, file = parsed(text)
    report = Report(source)
    names = collect_names(file, source, report)
    mesh = lower_mesh(names.mesh, report)
    dims = Dims(names, source, report)
    dims.declare(file.items)
    tensors = Tensors(names, mesh, dims, report)
    for item in file.items:
        if isinstance(item, nodes.Tensor):
            tensors.declare(item)
    known = File(source, report, names, mesh, dims, tensors.declared, Policies(names, dims, report))
    ops = {i.name.text: (i, lower_op(i, known)) for i in file.items if isinstance(i, nodes.Op)}
    why = {name: {d.code for d in report.diagnostics if d.severity is Severity.ERROR
                  and i.span.start <= d.span.start < i.span.end} for name, (i, _) in ops.items()}
    return {name: op for name, (_, op) in ops.items() if op is not None}, why, mesh


class Ranks:
    """The numpy model of one mesh: a global array to the ranks' arrays, by placements, and back."""

    def __init__(self, sizes, seed=0):
        self.sizes = sizes
        self.coordinates = list(itertools.product(*(range(s) for s in sizes)))
        self.random = np.random.default_rng(seed)

    def group(self, coordinate, axes):
        """Ranks that differ from one on these axes alone, the first axis outermost."""
        ranges = [range(s) if i in axes else (coordinate[i],) for i, s in enumerate(self.sizes)]
        return list(itertools.product(*ranges))

    def cut(self, array, dim, size, rank):
        rows = shard_size(array.shape[dim], size)
        return np.take(array, range(min(rank * rows, array.shape[dim]), min((rank + 1) * rows, array.shape[dim])), dim)

    def spread(self, whole, placements):
        held = {(): whole}
        for size, p in zip(self.sizes, placements, strict=True):
            new = {}
            for at, a in held.items():
                addends = list(self.random.integers(1, 4, (size - 1, *a.shape)).astype(float))
                addends.append(a - sum(addends))
                for r in range(size):
                    new[*at, r] = self.cut(a, p.dim, size, r) if isinstance(p, Shard) else (
                        addends[r] if p == Partial() else a)
            held = new
        return held

    def gather(self, held, placements):
        """The global array; ValueError if the ranks' arrays do not fit together or replicas differ."""
        for p, size in list(zip(placements, self.sizes, strict=True))[::-1]:
            new = {}
            for at in {c[:-1] for c in held}:
                parts = [held[*at, r] for r in range(size)]
                if isinstance(p, Shard):
                    new[at] = np.concatenate(parts, p.dim)
                    rows = shard_size(new[at].shape[p.dim], size)
                    if any(a.shape[p.dim] > rows for a in parts):
                        raise ValueError("not a contiguous shard")
                elif p == Partial():
                    new[at] = sum(parts)
                else:
                    new[at] = parts[0]
                    if not all(same(a, parts[0]) for a in parts):
                        raise ValueError("replicas differ")
            held = new
        return held[()]


def same(a, b):
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-7, atol=1e-9)


LOCAL = {
    "matmul": lambda a, b: a @ b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "gelu": lambda a: a / (1 + np.exp(-1.702 * a)),  # any nonlinear function will do
    "relu": lambda a: np.maximum(a, 0) + a * a,
    "silu": lambda a: a / (1 + np.exp(-a)),
    "tanh": np.tanh,
    "swiglu": lambda a, b: a / (1 + np.exp(-a)) * b,
    "transpose": lambda a: a.T,
    "cast": lambda a: a,
}


def run_global(value, inputs, memo):
    if id(value) not in memo:
        args = [run_global(a, inputs, memo) for a in value.args]
        match value.kind:
            case "param":
                result = inputs[value.attrs["name"]][0]
            case "const":
                result = np.float64(value.attrs["number"])
            case "pick":
                result = args[0][value.attrs["index"]]
            case "all_gather" | "reduce_scatter" | "all_reduce":
                result = args[0]
            case kind:
                result = LOCAL[kind](*args)
        memo[id(value)] = result
    return memo[id(value)]


def run_ranks(value, inputs, ranks, memo):
    if id(value) not in memo:
        args = [run_ranks(a, inputs, ranks, memo) for a in value.args]
        at, kind = value.attrs, value.kind
        if kind == "param":
            memo[id(value)] = inputs[at["name"]][1]
        elif kind in ("all_gather", "reduce_scatter", "all_reduce"):
            (t,) = args
            made = {}
            for c in ranks.coordinates:
                parts = [t[g] for g in ranks.group(c, axes_of(value))]
                made[c] = np.concatenate(parts, at["dim"]) if kind == "all_gather" else sum(parts)
                for axis in axes_of(value) if kind == "reduce_scatter" else ():
                    made[c] = ranks.cut(made[c], at["dim"], ranks.sizes[axis], c[axis])
            memo[id(value)] = made
        else:
            local = {"const": lambda: np.float64(at["number"]), "pick": lambda a: a[at["index"]]}.get(kind)
            memo[id(value)] = {c: (local or LOCAL[kind])(*(a[c] for a in args)) for c in ranks.coordinates}
    return memo[id(value)]


def inputs_for(op, ranks):
    made = {}
    for p in op.params:
        t = p.value.type
        whole = ranks.random.integers(1, 4, [evaluate(s, DIMS) for s in t.shape]).astype(float)
        made[p.name] = whole, ranks.spread(whole, t.placements)
    return made


def is_sound(op, ranks):
    """Whether an op's results, put together, are what they mean. ValueError counts as no."""
    inputs = inputs_for(op, ranks)
    for _, value in op.results:
        with np.errstate(all="ignore"):
            whole = run_global(value, inputs, {})
            if not np.all(np.isfinite(whole)) or np.any(np.abs(whole) > 1e6):
                continue  # a division by zero says nothing about placements
            try:
                together = ranks.gather(run_ranks(value, inputs, ranks, {}), value.type.placements)
            except (ValueError, IndexError):
                return False
        declared = tuple(evaluate(s, DIMS) for s in value.type.shape)
        if not (same(together, whole) and np.shape(whole) == declared):
            return False
    return True


# ---- every operator on every pair of placements

SHAPES = [("M", "N"), ("N", "M"), ("N",), ("M", "1"), ("1", "N"), ()]
AXES = {1: "mesh a[4]", 2: "mesh a[2], b[3]"}


def types_of(shape, axes):
    """All types of a shape over a mesh of `axes` axes, as text."""
    names = "ab"[:axes]
    for choice in itertools.product(["-", "+", *range(len(shape))], repeat=axes):
        dims = []
        for d, s in enumerate(shape):
            on = [n for n, c in zip(names, choice, strict=True) if c == d]
            dims.append(s + (f" @ {on[0]}" if len(on) == 1 else f" @ ({', '.join(on)})" if on else ""))
        summed = [n for n, c in zip(names, choice, strict=True) if c == "+"]
        tail = f" sum {summed[0]}" if len(summed) == 1 else f" sum ({', '.join(summed)})" if summed else ""
        yield f"f32[{', '.join(dims)}]{tail}"


def table_text(axes, shapes=SHAPES, every=1):
    """A file with an op for each operator and each pair of types (or for every n-th of them), and its expressions."""
    types = list(dict.fromkeys(t for s in shapes for t in types_of(s, axes)))
    packed = list(types_of(("E", "M", "N"), axes))
    lines = [AXES[axes], "dim M = 3..64", "dim N = 3..64", "dim E = 2"]
    lines += [f"tensor t{i} : {t}" for i, t in enumerate(types)] + [f"tensor p{i} : {t}" for i, t in enumerate(packed)]
    pairs = itertools.product(range(len(types)), repeat=2)
    binary = [f"t{i} {op} t{j}" for i, j in pairs for op in "+*/@"]
    binary += [f"swiglu(t{i}, t{j})" for i, j in itertools.product(range(len(types)), repeat=2)]
    unary = ["gelu({})", "{}.T", "-{}", "{} + 2", "{} * 2", "1 / {}", "{}[1]", "cast({}, bf16)"]
    for axis in "ab"[:axes]:
        unary += [f"{c}({{}}, over = {axis})" for c in ("all_gather", "all_reduce")]
        unary += [f"reduce_scatter({{}}, {d}, over = {axis})" for d in "MN"]
    if axes == 2:
        unary += [f"{c}({{}}, over = (a, b))" for c in ("all_gather", "all_reduce")]
        unary += [f"reduce_scatter({{}}, {d}, over = (a, b))" for d in "MN"]
    exprs = binary[::every] + [u.format(f"t{i}") for u in unary for i in range(len(types))]
    exprs += [f"p{i}[1]" for i in range(len(packed))]
    for n, e in enumerate(exprs):
        names = dict.fromkeys(w for w in e.replace("(", " ").replace(")", " ").replace(",", " ").replace(".", " ")
                              .replace("[", " ").replace("-", " ").split() if w[0] in "tp" and w[1:].isdigit())
        lines.append(f"op o{n}({', '.join(names)}) -> y {{ y = {e} }}")
    return "\n".join(lines) + "\n", {f"o{n}": e for n, e in enumerate(exprs)}


ONE_AXIS = table_text(1)
TWO_AXES = table_text(2, [("M", "N"), ("N", "M"), ("N",)], every=16)
SMALL = table_text(1, [("M", "N"), ("N", "M"), ("N",), ("M", "1")], every=3)


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
