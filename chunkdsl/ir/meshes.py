"""World sizes of meshes: how many ranks an op has, and what of the mesh lies outside of it.

A world size is an int on a mesh of one axis, and the sizes of both axes, outer first, on one of two. The collectives of
an op run over one axis, or over both together: its ranks are those of one subgroup. Subgroups are independent and do
the same, so schedules, plans and proofs speak of one of them, whose `world` is an int. What its ranks must know of the
rest of the mesh is bound like run-time dims: the ranks of every axis, and the index on it of the subgroup (`index_key`;
where the op runs over the axis, 0: its ranks bind their own).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from chunkdsl.ir.types import Mesh, index_key

World = int | tuple[int, ...]


def sizes(world: World) -> tuple[int, ...]:
    return world if isinstance(world, tuple) else (world,)


def ranks_of(world: World) -> int:
    """All ranks of the mesh."""
    return math.prod(sizes(world))


def world_text(world: World) -> str:
    """`8`, `2x4`."""
    return "x".join(map(str, sizes(world)))


def worlds_text(worlds: Iterable[World]) -> str:
    """World sizes as `--world` takes them."""
    return ",".join(map(world_text, worlds))


def declared(mesh: Mesh) -> World:
    """The world size that a mesh declares; 1 without a mesh."""
    return tuple(a.size for a in mesh.axes) if len(mesh.axes) > 1 else mesh.axes[0].size if mesh.axes else 1


def built_for(mesh: Mesh, one_axis: Iterable[int] = range(1, 17)) -> list[World]:
    """World sizes that every module is proven for, where the hardware serves them: up to 16 ranks; of two axes powers
    of two each."""
    if len(mesh.axes) < 2:
        return list(one_axis)
    powers = (1, 2, 4, 8, 16)
    return [(outer, inner) for outer in powers for inner in powers if outer * inner <= 16]


def bindings(mesh: Mesh, world: World | None = None, index: Sequence[int] = (0, 0)) -> dict[str, int]:
    """What a mesh of two axes adds to the bindings of run-time dims; nothing on a mesh of one."""
    if len(mesh.axes) < 2:
        return {}
    found = {}
    for axis, size, at in zip(mesh.axes, sizes(declared(mesh) if world is None else world), index, strict=True):
        found |= {axis.name: size, index_key(axis.name): at}
    return found


def run_time(bound: Mapping[str, int]) -> dict[str, int]:
    """The run-time dims of a binding, without what `bindings` adds to them."""
    axes = {name for name in bound if index_key(name) in bound}
    return {name: value for name, value in bound.items() if name not in axes | {index_key(axis) for axis in axes}}


def scope(mesh: Mesh, over: tuple[str, ...], world: World) -> int:
    """Ranks of an op that communicates over these axes (all of the mesh where it has one axis)."""
    if not over:
        return ranks_of(world)
    return math.prod(size for axis, size in zip(mesh.axes, sizes(world), strict=True) if axis.name in over)


def route_world(mesh: Mesh, over: tuple[str, ...], world: World) -> World:
    """The ranks of an op as its routes count them (`grid_of`)."""
    return world if len(over) > 1 else scope(mesh, over, world)


def coordinates(rank: int, world: World) -> tuple[int, ...]:
    """Indices of a rank on the axes: ranks count row-major, the inner axis fastest."""
    found = []
    for size in reversed(sizes(world)):
        rank, at = divmod(rank, size)
        found.append(at)
    return tuple(reversed(found))


def subgroup(mesh: Mesh, over: tuple[str, ...], world: World, rank: int) -> tuple[int, ...]:
    """Ranks of the mesh, in order, that take part with `rank` in an op over these axes."""
    if not over:
        return tuple(range(ranks_of(world)))
    at = coordinates(rank, world)
    fixed = [i for i, axis in enumerate(mesh.axes) if axis.name not in over]
    return tuple(r for r in range(ranks_of(world)) if all(coordinates(r, world)[i] == at[i] for i in fixed))


def subgroups(mesh: Mesh, over: tuple[str, ...], world: World) -> list[tuple[int, ...]]:
    """All subgroups of an op, in order of their first rank."""
    return list(dict.fromkeys(subgroup(mesh, over, world, r) for r in range(ranks_of(world))))


def outside(mesh: Mesh, over: tuple[str, ...], world: World, rank: int) -> dict[str, int]:
    """The bindings that the subgroup of `rank` works with: its index on the axes that the op does not run over."""
    index = (0 if a.name in over else at for a, at in zip(mesh.axes, coordinates(rank, world), strict=True))
    return bindings(mesh, world, tuple(index)) if over else {}


def grid_of(world: int, sizes: tuple[int, ...]) -> World:
    """The ranks of an op as its routes count them: the sizes of both axes where it runs over two (`sizes` are those of
    its axes), else their number."""
    return sizes if len(sizes) > 1 else world


def inner_of(over: tuple[str, ...], dims: Mapping[str, int]) -> int:
    """Ranks of the inner axis of an op over two axes together; 1 for one axis."""
    return dims[over[1]] if len(over) > 1 else 1


def of_rank(over: tuple[str, ...], dims: Mapping[str, int], rank: int) -> Mapping[str, int]:
    """Bindings for one rank of an op: where it runs over both axes, with the rank's own indices."""
    if len(over) < 2:
        return dims
    at = divmod(rank, dims[over[1]])
    return {**dims, index_key(over[0]): at[0], index_key(over[1]): at[1]}


def in_order(worlds: Iterable[World]) -> list[World]:
    """Ascending, each once."""
    return sorted(set(worlds), key=lambda w: (ranks_of(w), sizes(w)))
