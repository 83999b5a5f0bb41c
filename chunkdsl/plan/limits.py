"""What the targets have: shared memory of a block, multiprocessors, a block's register file. Sources: CUDA C++
programming guide, table of compute capabilities; AMD CDNA3 ISA guide (64 KiB LDS)."""

from __future__ import annotations

SHARED_BYTES = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448, "gfx942": 65_536}
MULTIPROCESSORS = {"sm_80": 108, "sm_90": 132, "sm_100": 148, "gfx942": 304}
ACCUMULATOR_REGISTERS = 32_768  # half of 65,536: operands, addresses and the epilogue need the rest
FLAG_WORDS = 1 << 20
TMA_TARGETS = ("sm_90", "sm_100")


def tile_columns(target: str, bm: int, bn: int, products: int) -> int:
    """Columns of a tile on `target`. Without TMA, addresses and masks take the registers that the accumulators of a
    wide tile need: it is halved there."""
    wide = bm * bn * max(1, products) > ACCUMULATOR_REGISTERS // 2
    return bn // 2 if wide and target not in TMA_TARGETS else bn


def stages_for(target: str, stage_bytes: int, wanted: int) -> int:
    """Software pipeline stages that fit `target`, at most `wanted`; 0 when not even one fits.

    Some kilobytes are left for barriers and the exchange of scalars between warps.
    """
    return min(wanted, (SHARED_BYTES[target] - 4096) // stage_bytes)
