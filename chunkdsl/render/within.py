"""What the kernel of a product prints for a sum that its own tiles make (plan/within): the arguments of the launch that
adds, beside the product's own, and the counting of tiles in the chunks that either signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chunkdsl.plan.tile_kernels import SHARES, STORERS

PREFIX = "sum_"


def held_names(arguments: Iterable, own: Iterable) -> Mapping[str, str]:
    """By name of an argument of the launch that adds, its name in the product's kernel: that of the product's `own`
    argument with the same value in a fused call, if there is one, else one of its own."""
    known = {a.fused: a.name for a in own}
    return {a.name: known.get(a.fused, PREFIX + a.name) for a in arguments}


def held(arguments: Iterable, names: Mapping[str, str]) -> Iterable[tuple[str, str, str, bool]]:
    """Those that the product's kernel has not anyway. In `exact` it adds nothing up."""
    for a in arguments:
        if names[a.name] == PREFIX + a.name:
            yield names[a.name], a.fused, "0" if a.integer else "None", a.integer


def counted(holder: str, counters: str) -> dict[str, str]:
    """Is a tile's contribution the last of its chunk? By who counts it: the Triton kernel's program, or the storers and
    the producer of specialised warps, who share a tile. `holder`: whose chunks tiles are of."""
    at = f"{counters} + {holder} * out_chunk_cap + c"
    shared = {by: f"arrive_in({at}, {n}, {STORERS} * tiles_of_chunk)" for by, n in SHARES.items()}
    return {"program": f"arrive({at}, tiles_of_chunk)"} | shared
