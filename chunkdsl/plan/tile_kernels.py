"""Which kernel computes a launch's tiles on which target: the Triton kernel, which can do everything, or one of
specialised warps (Gluon) for products that it fits. Says why not; the shape classes are in tile_kernels.toml."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from functools import cache

from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.plan.kinds import kind_of
from chunkdsl.plan.schedule import Launch, Moves, OpSchedule
from chunkdsl.plan.within import sum_within
from chunkdsl.record import record
from chunkdsl.runtime.slices import shape_for, tiles_of

PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "tile_kernels.toml")
POINTWISE = ("load", "const", "add", "sub", "mul", "div", "neg", "relu", "round")
STORED = ("local", "push", "publish", "hand_over")
TARGET = "sm_90"  # of the kernel of specialised warps
STORERS = 2  # of a tile of specialised warps, half of its rows each
SHARES = {"storer": 1, "producer": STORERS}  # of a tile in its chunk's counter; the producer counts one without rows


@record
class WarpShape:
    """A tile of specialised warps: its columns, stages of both operands, and its time in that of the widest."""

    columns: int
    stages: int
    time: float


@record
class WarpTiles:
    """The kernel of specialised warps. `registers`: of a thread that multiplies, of another; `adding`: where storers
    add up what others sent, `sending`: and send the sums to every rank, `adders`: of how many ranks at most; `depth`:
    the least of a call that it runs; `copies`: most ranks that a tile goes to; `shapes`: of its tiles, the widest
    first, which is that of the plan."""

    triton: tuple[int, ...]
    tile: tuple[int, int, int]
    registers: tuple[int, int]
    adding: tuple[int, int]
    sending: tuple[int, int]
    adders: int
    depth: int
    copies: int
    shapes: tuple[WarpShape, ...]


@cache
def warp_tiles() -> WarpTiles:
    """The row of tile_kernels.toml."""
    with open(PATH, "rb") as file:
        row = tomllib.load(file)["warps"]
    row["shapes"] = [WarpShape(**shape) for shape in row["shapes"]]
    made = {name: row[name] for name in WarpTiles.__match_args__}
    return WarpTiles(**{name: tuple(v) if isinstance(v, list) else v for name, v in made.items()})


def movers_beside(launch: Launch) -> tuple[Moves, ...]:
    """Moves of finished tiles by programs of their own, which a launch beside that of the tiles can do: no tile waits
    for them."""
    return tuple(
        m for m in launch.moves if m.kind == "scatter" and m.programs and m.leaving and not m.ring and not m.routing
    )


def why_not_warps(launch: Launch, op: OpSchedule) -> str:
    """Why a launch's tiles are the Triton kernel's on every target; "" if specialised warps can compute them."""
    n, d, t = launch, launch.destination, launch.tiling
    if (kind := kind_of(n)) != "product":
        other = {"library": "its product is the library's", "kernel": "its tiles are a user's kernel"}
        return other.get(kind, "its tiles are no plain product")
    if len(n.products) > 1:
        return "two products share its tiles: their accumulators fill the registers"
    if n.a.dtype not in ("bf16", "f16") or n.products[0].b.dtype != n.a.dtype or d.dtype not in ("bf16", "f16"):
        return f"it multiplies {n.a.dtype} into {d.dtype}"
    if (t.bm, t.bn, t.bk) != warp_tiles().tile:
        return f"its tile is {t.bm}x{t.bn}x{t.bk}, that of specialised warps {'x'.join(map(str, warp_tiles().tile))}"
    if n.layout != CONTIGUOUS or op.nested or n.column_shards or n.from_every:
        return "its shards are not contiguous rows of one mesh axis"
    if any(m.via != "copy_engine" and m not in movers_beside(n) for m in n.moves):
        return "its tiles wait for chunks that its own programs carry, or take turns with them"
    if d.kind not in STORED or d.deal:
        return "its tiles are cut up, to go to several ranks"
    if any(o.role not in ("row", "scalar") for o in n.operands):
        return "the rest of its statement reads more than a row"
    total = sum_within(op, n)
    if total and {total.sums.wire, total.destination.dtype, d.dtype} != {d.dtype}:
        return "the sum that its tiles make is rounded to another dtype than its addends"
    heavy = next((i.op for i in (*n.epilogue, *(total.epilogue if total else ())) if i.op not in POINTWISE), "")
    return f"{heavy} takes registers that the accumulators of specialised warps leave none of" if heavy else ""


def most_ranks(launch: Launch, op: OpSchedule) -> int | None:
    """How many ranks its kernel of specialised warps can serve; None: any number."""
    if sum_within(op, launch):
        return warp_tiles().adders
    everyone = launch.destination.kind == "push" and launch.destination.everyone
    return warp_tiles().copies if everyone else None


def warp_shape(
    launch: Launch, op: OpSchedule, target: str, world: int, tiles: int, cols: int, depth: int, multiprocessors: int
) -> WarpShape | None:
    """The tile of specialised warps that a call runs on a target, as the module decides it (runtime/warps.py); None for
    Triton's kernel. `tiles` of the plan's tile, `cols` of the result, contracted over `depth`."""
    w, most = warp_tiles(), most_ranks(launch, op)
    fits = launch.warps and target == TARGET and (most is None or world <= most)
    if not fits or cols % 8 or cols == 0 or depth < w.depth:
        return None
    shapes = [(s.columns, s.stages, s.time) for s in shapes_of(launch)]
    return WarpShape(*shape_for(shapes, multiprocessors, tiles, cols, w.tile[1]))


def narrowed(tiles: int, cols: int, shape: WarpShape) -> int:
    """Tiles of a shape, of a product of so many columns that has `tiles` of the plan's tile."""
    return tiles_of(tiles, cols, warp_tiles().tile[1], shape.columns)


def registers_of(launch: Launch, op: OpSchedule) -> tuple[int, int]:
    """Of a thread that multiplies, and of another."""
    w, total = warp_tiles(), sum_within(op, launch)
    if total is None:
        return w.registers
    return w.sending if total.destination.kind == "broadcast" else w.adding


def shapes_of(launch: Launch) -> tuple[WarpShape, ...]:
    """Of its tiles by specialised warps. One where a launch beside it carries them, which is compiled for it too."""
    return warp_tiles().shapes[: 1 if movers_beside(launch) else None]


def settle_kernels(op: OpSchedule) -> OpSchedule:
    """With `why_triton` of its launches."""
    return replace(op, launches=tuple(replace(n, why_triton=why_not_warps(n, op)) for n in op.launches))


def tickets_of(op: OpSchedule) -> list[str]:
    """Names of the tickets of an op's launches, and of those beside them."""
    beside = [n for n in op.launches if movers_beside(n) and n.warps]
    return [*(f"{n.name}_tickets" for n in op.launches if not n.library), *(f"{n.name}_movers" for n in beside)]


def kernel_text(launch: Launch, op: OpSchedule) -> tuple[str, str]:
    """(who computes the tiles on Hopper, why), for people."""
    if launch.library:
        return "the library", "compute = library: a call of cuBLAS for each chunk, in the stream"
    if launch.why_triton:
        return "Triton", launch.why_triton
    w = warp_tiles()
    versions = ", ".join(f"{v // 10}.{v % 10}" for v in w.triton)
    who = f"specialised warps (Gluon of triton {versions})"
    most = most_ranks(launch, op)
    more = f"more than {most} ranks, " if most else ""
    columns = " or ".join(str(s.columns) for s in shapes_of(launch))
    return who, (
        f"faster, in tiles of {columns} columns, as they fill the multiprocessors better; depths below {w.depth}, "
        f"{more}and rows of the result that are no multiple of 16 bytes, are Triton's, with the same bits"
    )
