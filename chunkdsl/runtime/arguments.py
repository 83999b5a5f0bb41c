"""What an op is called with: how many tensors, which sizes they imply, which shapes its results have. Works on shapes
alone, also symbolic ones. Copied into the module.
"""

from __future__ import annotations

import operator

import torch

from chunkdsl.runtime.gradients import transformed
from chunkdsl.runtime.layer import OpLayer


def cdiv(a, b):
    return -(-a // b)


def shard_rows(size, world, rank, inner=1):
    """Elements of a ceil-divided dim that `rank` holds; the last ranks may hold fewer or none. Of two mesh axes the
    outer one cuts first, then the `inner` ranks of the other what is left."""
    if inner > 1:
        return shard_rows(shard_rows(size, world // inner, rank // inner), inner, rank % inner)
    each = cdiv(size, world)
    return max(0, min(size, (rank + 1) * each) - rank * each)


def whole_sizes(owner, given):
    """Sizes as integers. TypeError for one that is none, such as 64.0."""
    for name, value in given.items():
        if not hasattr(value, "__index__"):
            raise TypeError(f"{owner}: {name} = {value!r} is not an integer")
    return {name: operator.index(value) for name, value in given.items()}


class Arguments:
    """The tables of a generated op (shapes are tuples of (size, sharded)), and what follows from them.

    On a mesh of two axes an extent goes on with the axes that cut it before those over which the op communicates;
    `here` has the ranks of each axis and this rank's index on it, `inner` is 1 but for an op over both axes."""

    NAME, PARAMETERS, RESULTS, RANGES, WHOLE = "", {}, {}, {}, ()
    world, rank, inner, here = 1, 0, 1, {}

    def __repr__(self):
        return f"{self.module.NAME}.{self.NAME}({', '.join(self.PARAMETERS)}) -> {', '.join(self.RESULTS)}"

    def count(self, tensors, given):
        """TypeError for too few or many tensors, or a size that the op does not have."""
        if len(tensors) != len(self.PARAMETERS):
            names = ", ".join(self.PARAMETERS)
            raise TypeError(f"{self.NAME} takes {len(self.PARAMETERS)} tensors ({names}), not {len(tensors)}")
        unknown = [name for name in given if name not in self.RANGES]
        if unknown:
            known = ", ".join(self.RANGES)
            raise TypeError(f"{self.NAME} has no size {', '.join(sorted(unknown))}; its run-time sizes: {known}")

    def outs(self, out):
        """The tensors of `out=`. ValueError unless there is one for each result."""
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(self.RESULTS):
            raise ValueError(f"{self.NAME} has {len(self.RESULTS)} results, out has {len(given)}")
        return given

    def sizes_of(self, tensors, given):
        """Run-time dims of a call by its local tensors or their shapes: what is given, else W times the local size."""
        dims = {name: value for name, value in given.items() if value is not None}
        for tensor, (_, shape) in zip(tensors, self.PARAMETERS.values(), strict=True):
            lengths = tensor.shape if isinstance(tensor, torch.Tensor) else tensor
            for length, (size, sharded, *before) in zip(lengths, shape, strict=True):
                if isinstance(size, str):
                    for axis in before:
                        length = length * self.here[axis]
                    dims.setdefault(size, length * self.world if sharded else length)
        return dims

    def result_shapes(self, tensors, given):
        """(local shape, dtype) of each result; lengths may be symbolic. An extent that a parameter has too is taken
        from it, so that a tracer sees them equal."""
        dims, seen = self.sizes_of(tensors, given), {}
        for tensor, (_, shape) in zip(tensors, self.PARAMETERS.values(), strict=True):
            seen |= {e: n for e, n in zip(shape, tensor.shape, strict=True) if isinstance(e[0], str)}
        return [
            (tuple(seen[e] if e in seen else self.local_shape((e,), dims)[0] for e in shape), dtype)
            for dtype, shape in self.RESULTS.values()
        ]

    def local_shape(self, shape, dims):
        """This rank's shape for declared extents."""
        found = []
        for size, sharded, *before in shape:
            n = self.cut(dims[size] if isinstance(size, str) else size(dims) if callable(size) else size, before)
            found.append(self.part(n, sharded, self.rank))
        return tuple(found)

    def part(self, n, sharded, rank):
        """Elements of a dim that a rank holds."""
        return shard_rows(n, self.world, rank, self.inner) if sharded else n

    def broken_block(self):
        """Why a kernel that takes whole blocks of a size cannot run on some rank's part of it, or None. The same on
        every rank. WHOLE has (size, elements of a block, what they are)."""
        for size, block, what in self.WHOLE:
            for rank in range(self.world):
                n = self.part(size, True, rank)
                if n % block:
                    return f"rank {rank} has {n} of {what}, which takes whole blocks of {block}"
        return None

    def nominal(self, n, sharded):
        """Elements of a shard: no rank holds more."""
        return cdiv(n, self.world) if sharded else n

    def cut(self, n, axes):
        """What is left on this rank of a dim that these axes of the mesh have cut."""
        for axis in axes:
            n = shard_rows(n, self.here[axis], self.here[f"{axis}.rank"])
        return n

    def differentiated(self, tensors):
        return torch.is_grad_enabled() and (transformed() or any(t.requires_grad for t in tensors))

    def partner(self, name):
        """Another op of the same instance."""
        return getattr(self.module, name)

    def ahead(self, tensors):
        """The op that runs: where a gradient will be asked for, one that also returns what the backward pass needs."""
        return self.partner(self.FORWARD) if self.FORWARD and self.differentiated(tensors) else self

    def first(self, values):
        """The results of this op, of which the op that runs for the backward pass returns more."""
        if not isinstance(values, (tuple, list)):
            return values
        return values[0] if len(self.RESULTS) == 1 else tuple(values[: len(self.RESULTS)])

    def _aligned(self, tensor):
        tensor = tensor.contiguous()
        return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()

    def as_module(self, weights, seed=0, std=0.02, dtype=None, local=False):
        """A torch.nn.Module of this op whose `weights` (names of its tensors) are parameters; see OpLayer."""
        return OpLayer(self, weights, seed, std, dtype, local)
