"""Which machine an op is predicted on: the GPU that goes with its fastest link unless one is named, the links of the
axes that it communicates over."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.cost.constants import Machine, default_gpu, machine
from chunkdsl.ir.meshes import inner_of
from chunkdsl.plan.schedule import OpSchedule, Schedule


def machine_for(
    made: Schedule, op: OpSchedule, dims: Mapping[str, int], gpu: str | None = None, captured: bool = True
) -> Machine:
    """`dims`: bindings of a call, with those of a mesh of two axes. KeyError for a GPU without figures."""
    *outer, link = made.links_of(op)
    name = gpu or default_gpu(link)
    if not outer:
        return machine(name, link, captured)
    return machine(name, link, captured, outer[0], inner_of(op.over, dims))
