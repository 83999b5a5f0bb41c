"""Which ranks an op communicates with on a mesh of two axes. Copied into the module.

Each op runs over one axis, or over both together: its machine is among those ranks alone, so that subgroups share no
memory, no flags and no process group.
"""

from __future__ import annotations

import math
import weakref
from typing import ClassVar

import torch
import torch.distributed as dist

from chunkdsl.runtime.arguments import shard_rows
from chunkdsl.runtime.ranks import Ranks


def joined(shards, rows, inner):
    """The whole tensor of its padded shards [world, each, n], which two axes have cut."""
    return torch.cat([s[: shard_rows(rows, len(shards), r, inner)] for r, s in enumerate(shards)])


def mesh_shape(name, axes, mesh):
    """Ranks of each axis. ValueError for anything but a mesh of two dims of these names, outer first."""
    if isinstance(mesh, tuple):  # on a machine that was given
        return mesh
    if mesh is None or not hasattr(mesh, "get_group"):
        raise ValueError(f"{name} runs on a mesh of two axes: pass mesh=, a DeviceMesh of dims {axes}")
    named = mesh.mesh_dim_names
    if mesh.ndim != 2 or (named is not None and tuple(named) != axes):
        what = f"dims {named}" if named is not None else f"{mesh.ndim} dims"
        raise ValueError(f"{name} runs on a mesh of dims {axes}, outer first; this one has {what}")
    return tuple(mesh.mesh.shape)


def mesh_group(name, mesh, group=None):
    """The process group of all ranks of a DeviceMesh, row by row: `group`, or one that is made once for a mesh.
    Collective among them. ValueError where it cannot be made: torch names it by how many groups a rank is in."""
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise ValueError(f"{name}: the ranks of the mesh do not ascend row by row ({ranks}), as those of a group do")
    if group is not None:
        if dist.get_process_group_ranks(group) != ranks:
            raise ValueError(f"{name}: the ranks of the group are not those of the mesh, {ranks}")
        return group
    if ranks == list(range(dist.get_world_size())):
        return dist.group.WORLD
    world = dist.distributed_c10d._world
    held = MeshRanks.GROUPS.get(mesh)
    if held is None or held not in world.pg_map:  # none yet, or torch.distributed was set up anew
        counts = [len(world.pg_names)]
        for dim in (1, 0):
            every = [None] * mesh.size(dim)
            dist.all_gather_object(every, counts, group=mesh.get_group(dim))
            counts = [n for one in every for n in one]
        if len(set(counts)) > 1:
            raise ValueError(
                f"{name}: the ranks of the mesh are in {counts} process groups, and torch makes a group of some ranks "
                f"only where they are in equally many: make it with torch.distributed.new_group({ranks}) on all "
                "processes, and pass group= beside mesh="
            )
        held = MeshRanks.GROUPS[mesh] = dist.new_group(ranks, use_local_synchronization=True)
    return held


class MeshRanks(Ranks):
    """The ranks of a mesh of two axes; `shape` is (outer, inner)."""

    GROUPS: ClassVar = weakref.WeakKeyDictionary()

    def __init__(self, name, axes, machine, mesh):
        self.shape = shape = mesh_shape(name, axes, mesh)
        if shape[0] * shape[1] != machine.world:
            raise ValueError(f"{name}: a mesh of {self.said(shape)} ranks, and {machine.world} processes")
        at = divmod(machine.rank, shape[1])
        self.first = self.bound(axes, shape)
        self.here = self.first | {f"{axis}.rank": index for axis, index in zip(axes, at, strict=True)}
        outer = range(at[1], machine.world, shape[1])
        inner = range(at[0] * shape[1], (at[0] + 1) * shape[1])
        groups = [mesh.get_group(dim) for dim in range(2)] if hasattr(mesh, "get_group") else [None, None]
        self._machines = {
            axes: machine,
            axes[:1]: machine.among(tuple(outer), groups[0]),
            axes[1:]: machine.among(tuple(inner), groups[1]),
        }
        self.machines = list(self._machines.values())

    @staticmethod
    def group_of(name, axes, group, mesh):
        """The process group of all ranks of the mesh."""
        mesh_shape(name, axes, mesh)
        return mesh_group(name, mesh, group)

    @staticmethod
    def said(shape):
        """2x4"""
        return "x".join(map(str, shape))

    @staticmethod
    def bound(axes, world):
        sizes = dict(zip(axes, world, strict=True))
        return sizes | {f"{axis}.rank": 0 for axis in axes}

    @staticmethod
    def count(axes, world, over):
        return math.prod(size for axis, size in zip(axes, world, strict=True) if axis in over)

    def reaches(self, least):
        """Are there at least so many ranks on each axis? 1: on any mesh."""
        return least == 1 or all(n <= m for n, m in zip(least, self.shape, strict=True))

    def machine_of(self, over):
        return self._machines[over]

    def inner_of(self, over):
        return self.shape[1] if len(over) > 1 else 1
