"""What an op is called with: how many tensors, which sizes they imply, which shapes its results have. Works on shapes
alone, also symbolic ones. Copied into the module.
"""

from __future__ import annotations

import torch


def cdiv(a, b):
    return -(-a // b)


def shard_rows(size, world, rank):
    """Elements of a ceil-divided dim that `rank` holds; the last ranks may hold fewer or none."""
    each = cdiv(size, world)
    return max(0, min(size, (rank + 1) * each) - rank * each)


class Arguments:
    """The tables of a generated op (shapes are tuples of (size, sharded)), and what follows from them."""

    NAME, PARAMETERS, RESULTS, RANGES = "", {}, {}, {}
    world, rank = 1, 0

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
            for length, (size, sharded) in zip(lengths, shape, strict=True):
                if isinstance(size, str):
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
        """This rank's shape for declared extents (size, sharded)."""
        sizes = (dims[s] if isinstance(s, str) else s(dims) if callable(s) else s for s, _ in shape)
        return tuple(
            shard_rows(n, self.world, self.rank) if sharded else n for n, (_, sharded) in zip(sizes, shape, strict=True)
        )
