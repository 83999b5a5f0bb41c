"""Which ranks an instance has, and which of them an op communicates with, on a mesh of one axis: all. Copied into the
module; `mesh.py` has the same for two axes.
"""

from __future__ import annotations


class Ranks:
    """`shape` is the number of ranks. `here`: ranks of every axis and this rank's index on it, where there are two;
    `first`: the same for the first rank, whose shards are the largest. `machines`: every one in use, once."""

    def __init__(self, name, axes, machine, mesh):
        self.shape, self.here, self.first, self.machines = machine.world, {}, {}, [machine]

    @staticmethod
    def group_of(name, axes, group, mesh):
        """The process group of all ranks; None is every process. A DeviceMesh has one dim."""
        if mesh is None or not hasattr(mesh, "get_group"):
            return mesh if group is None else group
        if getattr(mesh, "ndim", 1) != 1:
            raise ValueError(f"{name} runs on a mesh of one axis, this one has {mesh.ndim} dims: pass mesh[dim]")
        return mesh.get_group()

    @staticmethod
    def said(shape):
        """A number of ranks, for messages."""
        return str(shape)

    @staticmethod
    def bound(axes, world):
        """What the mesh adds to the bindings of run-time sizes, for the first rank."""
        return {}

    @staticmethod
    def count(axes, world, over):
        """Ranks that an op communicates with."""
        return world

    def reaches(self, least):
        """Are there at least so many ranks?"""
        return least <= self.shape

    def machine_of(self, over):
        """The machine among those ranks."""
        return self.machines[0]

    def inner_of(self, over):
        """Ranks of the inner axis of an op over two axes."""
        return 1
