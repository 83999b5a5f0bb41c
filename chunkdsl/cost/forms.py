"""The ends of a reduction behind a product, `algorithm` and `add`, that are held against each other: all have the same
bits. Only where they were measured: two ranks of one NVLink, tiles of specialised warps. Elsewhere the rules stand.
"""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.cost.constants import Machine, figures
from chunkdsl.plan.geometry import local_size
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.tile_kernels import warp_shape
from chunkdsl.plan.within import sum_within

Form = tuple[tuple[str, str], ...]

LINK = "nvlink"
SCATTERS: tuple[Form, ...] = ((("add", "behind"),), (("add", "in_tiles"),))
REDUCES: tuple[Form, ...] = (
    (("algorithm", "two_shot"), ("add", "behind")),
    (("algorithm", "one_shot"), ("add", "behind")),
    (("algorithm", "two_shot"), ("add", "in_tiles")),
)
FORMS = {"reduce_scatter": SCATTERS, "all_reduce": REDUCES}  # that of the rules first; before each what is simpler
FORM_KEYS = ("algorithm", "add")


def forms_of(kind: str, world: int, machine: Machine) -> tuple[Form, ...]:
    """What is up for choice for a kind of collective; nothing where nobody measured it."""
    near = machine.outer is None and machine.link.name == LINK and world <= figures("choices")["form_ranks"]["value"]
    return FORMS.get(kind, ()) if near else ()


def by_warps(made: OpSchedule, world: int, dims: Mapping[str, int], machine: Machine) -> bool:
    """Are all products that add up in their tiles, or send them to every rank, computed by specialised warps in this
    call?"""

    def fits(n) -> bool:
        cols, depth = (local_size(size, dims, world, 0, made.over) for size in (n.cols, n.depth))
        count = machine.gpu.multiprocessors
        return warp_shape(n, made, machine.gpu.target, world, count, cols, depth, count) is not None

    ends = [n for n in made.launches if n.products and (sum_within(made, n) or _to_all(n))]
    return all(map(fits, ends))


def _to_all(n) -> bool:
    return n.destination.kind == "push" and n.destination.everyone
