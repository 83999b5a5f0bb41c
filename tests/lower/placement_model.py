"""The numpy model of placements, by which the tests of the placement table judge typed programs.

A tensor has a global value. A rank holds a slice of it (Shard, nested over axes as DTensor cuts), all of it
(Replicate) or an addend (Partial). An operation is evaluated once on global values and once on each rank's own
arrays; put together as the result's type says, the ranks' results must be the global one.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from chunkdsl.diagnostics import Report, Severity
from chunkdsl.ir.graph import axes_of
from chunkdsl.ir.types import Partial, Shard, evaluate, shard_size
from chunkdsl.lower.expressions import File
from chunkdsl.lower.names import collect_names
from chunkdsl.lower.ops import lower_op
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


SMALL = table_text(1, [("M", "N"), ("N", "M"), ("N",), ("M", "1")], every=3)
