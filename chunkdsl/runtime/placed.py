"""Calls with DTensors: their placements are compared with the declared ones, ops run on the local shards, and results
are DTensors again. Copied into the module.
"""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.runtime.arguments import Arguments
from chunkdsl.runtime.gradients import results_of
from chunkdsl.runtime.layer import is_placed, local_of


def any_placed(tensors):
    return any(is_placed(t) for t in tensors)


class PlacementTable(Mapping):
    """DTensor placements by a tensor's name, one for each mesh axis, outer first."""

    def __init__(self, said):
        self.said = said

    def __getitem__(self, name):
        from torch.distributed.tensor import Partial, Replicate, Shard

        known = {"Replicate": Replicate(), "Partial": Partial()}
        return tuple(known[p] if p in known else Shard(int(p[6:-1])) for p in self.said[name])

    def __iter__(self):
        return iter(self.said)

    def __len__(self):
        return len(self.said)


def ranks_in(mesh):
    """Its global ranks, row by row, in words that say its shape."""
    return str(mesh.mesh.tolist())


class PlacedCalls(Arguments):
    """`placements`: of parameters and results."""

    placements = PlacementTable({})

    def placed(self, call, tensors, given, out=None):
        """`call` on the shards of DTensors; local tensors beside them are shards already. Run-time sizes follow from
        the DTensors. ValueError for one whose placements or mesh are not those of this op."""
        from torch.distributed.tensor import DTensor

        if out is not None:
            raise ValueError(f"{self.NAME}: out= is for local tensors: pass to_local() of the others")
        self.count(tensors, given)
        given, local, back, mesh = dict(given), [], self.gradient_placements(), None
        for tensor, (name, (_, shape)) in zip(tensors, self.PARAMETERS.items(), strict=True):
            if not is_placed(tensor):
                local.append(tensor)
                continue
            mesh = self.same_mesh(name, tensor.device_mesh)
            if tuple(tensor.placements) != self.placements[name]:
                found, declared = (", ".join(map(str, p)) for p in (tensor.placements, self.placements[name]))
                raise ValueError(
                    f"{self.NAME}: {name} is placed ({found}), declared as ({declared}); "
                    f"redistribute it to {self.NAME}.placements[{name!r}]"
                )
            for length, (size, *_) in zip(tensor.shape, shape, strict=True):
                if isinstance(size, str) and given.setdefault(size, length) != length:
                    raise ValueError(f"{self.NAME}: {size} = {given[size]}, and {name} has {length} along it")
            local.append(local_of(tensor, back.get(name)))
        made = call(*local, **given)
        dims = self.sizes_of(local, given)
        placed = []
        for value, (name, (_, shape)) in zip(results_of(made), self.RESULTS.items(), strict=True):
            sizes = tuple(dims[n] if isinstance(n, str) else n(dims) if callable(n) else n for n, *_ in shape)
            strides = [1] * len(sizes)
            for i in reversed(range(len(sizes) - 1)):
                strides[i] = strides[i + 1] * max(1, sizes[i + 1])
            kind = self.placements[name]
            placed.append(DTensor.from_local(value, mesh, kind, run_check=False, shape=sizes, stride=tuple(strides)))
        return placed[0] if len(placed) == 1 else tuple(placed)

    def same_mesh(self, name, mesh):
        """`mesh`, if it has the ranks of this instance in its order and shape."""
        mine = self.module.mesh
        if mesh is not mine and mesh != mine and (mine is None or ranks_in(mesh) != ranks_in(mine)):
            where = "no process group" if mine is None else ranks_in(mine)
            raise ValueError(f"{self.NAME}: {name} is on a mesh of ranks {ranks_in(mesh)}, this instance on {where}")
        return mesh

    def gradient_placements(self):
        """Of what the backward pass gives for each parameter; nothing without one."""
        return {name: backward.placements[result] for name, result, backward in self.gradients()}

    def gradient_dtypes(self):
        """The same of dtypes."""
        return {name: backward.RESULTS[result][0] for name, result, backward in self.gradients()}

    def gradients(self):
        """(parameter, result of the backward op, that op) for each parameter."""
        if not self.FORWARD:
            return []
        backward = self.partner(self.partner(self.FORWARD).BACKWARD[0])
        pairs = zip(self.PARAMETERS, backward.RESULTS, strict=True)
        return [(name, result, backward) for name, result in pairs]
