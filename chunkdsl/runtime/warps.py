"""Warp-specialised products on Hopper, in Gluon: what the partitions of an emitted kernel share, whatever it computes.
Copied into the module, so: torch and triton only.

A program has five partitions: a producer warp, two multipliers of four warps and a storer warp for each of them. The
producer announces tile numbers in a ring of words (-1: no more) and fills a ring of stages of both operands (TMA); each
multiplier makes half of a tile's rows, and hands the result of a tile over, rounded, a quarter of its columns at a time
while it works on the next tile; the storer has it stored (TMA) and signals. Measured against other shapes of the same
(one multiplier of eight warps, whole tiles in turns, fewer stages) in tests/bench/RESULTS.md.

Barriers: a ring's `full` has one arrival a round (or TMA's bytes), its `free` one from each reader. The n-th round of a
slot waits for parity n & 1 where it reads, for the other one where it writes.

Of Gluon's interface triton 3.6 and 3.7 differ in nothing that is used here; 3.9 renamed the TMA calls.
"""

from __future__ import annotations

from functools import cache

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.runtime.arguments import cdiv
from chunkdsl.runtime.slices import shape_for, tiles_of

load_box = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_box = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global


@gluon.jit
def announce(words, told, heard, turn, tile):
    """The producer's next word. It runs up to four tiles ahead of the slowest reader."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    slot = turn % 4
    hopper.mbarrier.wait(heard.index(slot), (turn // 4 & 1) ^ 1)
    words.index(slot).store(gl.full([1], tile, gl.int32, one))
    hopper.mbarrier.arrive(told.index(slot), count=1)


@gluon.jit
def hear(words, told, heard, turn, WARPS: gl.constexpr):
    """The word that the producer announced at `turn`: a tile, or -1 after the last."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    slot = turn % 4
    hopper.mbarrier.wait(told.index(slot), turn // 4 & 1)
    tile = gl.max(words.index(slot).load(one), 0)
    hopper.mbarrier.arrive(heard.index(slot), count=1)
    return tile


@gluon.jit
def anew(x):
    """x, a number of 32 bits, from which nothing can be worked out ahead: what partitions have in common is otherwise
    computed once for all of them, and keeps registers that each of them is short of."""
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)


@gluon.jit
def last_heard(words, turn, WARPS: gl.constexpr):
    """The tile announced before the word of `turn`, which was the end: it is still in its place. Asked for again, not
    remembered: Triton up to 3.9 takes a copy that a loop carries for one that never changes."""
    one: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    return gl.max(words.index((turn - 1) % 4).load(one), 0)


@gluon.jit
def multiply_stage(
    acc, first, stage, parity, a_ring, b_ring, ready, free,
    SIDE: gl.constexpr, TRANSPOSED: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """acc += a @ b of one stage, left running; the stage before is read by then, and freed (not by a tile's first)."""
    hopper.mbarrier.wait(ready.index(stage), parity)
    a = a_ring.index(stage).slice(SIDE * acc.shape[0], acc.shape[0], 0)
    b = b_ring.index(stage)
    if TRANSPOSED:
        b = b.permute((1, 0))
    acc = hopper.warpgroup_mma(a, b, acc, use_acc=first == 0, is_async=True)
    acc = hopper.warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
    # Computed, not remembered: Triton up to 3.9 takes a copy that a loop carries for one that never changes.
    hopper.mbarrier.arrive(free.index(gl.where(stage == 0, STAGES - 1, stage - 1)), count=1, pred=first == 0)
    stage += 1
    parity = gl.where(stage == STAGES, parity ^ 1, parity)
    stage = gl.where(stage == STAGES, 0, stage)
    return acc, stage, parity


@gluon.jit
def end_product(acc, stage, free, STAGES: gl.constexpr):
    """The accumulator once all of its products are done; frees the last stage."""
    acc = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    hopper.mbarrier.arrive(free.index(gl.where(stage == 0, STAGES - 1, stage - 1)), count=1)
    return acc


@gluon.jit
def left_right(x):
    rows: gl.constexpr = x.shape[0]
    cols: gl.constexpr = x.shape[1]
    return x.reshape(rows, 2, cols // 2).permute(0, 2, 1).split()


@gluon.jit
def hand_over(x, ring, full, free, slot, use):
    """A piece of a result to the storer. The use-th round of a slot waits until the one before has been read."""
    hopper.mbarrier.wait(free.index(slot), (use & 1) ^ 1)
    ring.index(slot).store(x)
    hopper.fence_async_shared()
    hopper.mbarrier.arrive(full.index(slot), count=1)


@gluon.jit
def fetch_rows(at, pitch, bytes, ROWS: gl.constexpr):
    """`bytes` of each of ROWS rows, a multiple of 16, on their way from memory to the cache: whoever loads them later
    waits less. Says nothing about what they hold, and may come before they are written."""
    lines: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    rows = gl.arange(0, ROWS, layout=lines)
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r", [at + rows * pitch, gl.full([ROWS], bytes, gl.int32, lines)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def begin_ring(full, free, COUNT: gl.constexpr, READERS: gl.constexpr):
    for i in gl.static_range(COUNT):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(free.index(i), count=READERS)


# ---- host side


def gluon_version():
    """The version of Gluon's interface, as tables have it: 36 of Triton 3.6."""
    major, minor = (int(n) for n in triton.__version__.split(".")[:2])
    return 10 * major + min(minor, 9)


def gluon_api(module):
    """The version of Gluon's interface that kernels of specialised warps of this instance are compiled by; 0 where they
    do not run: on other GPUs, on simulated ranks. `module.warps = 0` keeps an instance from them."""
    if module.warps is None:
        on_hopper = module.machine.target == "sm_90" and module.machine.device.type == "cuda"
        module.warps = gluon_version() if on_hopper and module.tma else 0
    return module.warps


def warp_tiles(operation, constants, tiles, n, depth, active):
    """`constants` of a product of n columns and that depth in so many tiles, or what its kernel of specialised warps
    takes, where the call suits it: a depth at least as its table says, rows of whole multiples of 16 bytes and at least
    one (no box can be described in none), few ranks if tiles go to all or add up. Its tiles are those which keep
    multiprocessors busy for the shortest time. All of these give the same bits and the same signals, so ranks need not
    agree. A warm-up launches each, whatever its sizes: those of a later call may suit."""
    table = constants["WARP_TILES"]
    many = operation.world > table.get("MOST_RANKS", operation.world)
    if gluon_api(operation.module) not in table["TRITON"] or many:
        return constants
    shapes = [shape for shape in table["SHAPES"] if active or shape[0] == operation.by_warps]
    if not shapes or (active and (depth < table["DEPTH"] or n % 8 or n == 0)):
        return constants
    columns, stages, _ = shape_for(shapes, operation.machine.sms, tiles, n, constants["BN"])
    sizes = {name: constants[name] for name in ("BM", "BK", "GROUP", "PIECE", "PIECE_COLS")}
    return {**sizes, "BN": columns, "STAGES": stages, "WIDE": table["WIDE"], "NARROW": table["NARROW"]}


@cache
def operand_layout(rows, columns):
    """How TMA lays a box of 2-byte elements out in shared memory, for wgmma."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)


def warp_matrix(operation, kind, tensor, chosen, tma, columns):
    """An operand of a product, for whichever kernel was chosen."""
    made = operation.matrix(kind, tensor, chosen, tma, columns)
    if "WIDE" not in chosen:
        return made
    return GluonDescriptor(made.base, made.shape, made.strides, made.block_shape, operand_layout(*made.block_shape))


def launch_warps(operation, kernel, tiles, args, constants, chosen, active, kept=0):
    """`tiles` of the shape of `constants` in tiles of the `chosen` shape, by as many programs as their waves need:
    multiprocessors that would only shorten the last wave stay free, as do those that are `kept` for others."""
    m = operation.machine
    sms, tiles = max(1, m.sms - kept), tiles_of(tiles, args["n"], constants["BN"], chosen["BN"])
    programs = max(1, cdiv(tiles, cdiv(max(1, tiles), sms)))
    early = m.starts_beside()
    flags = dict(W=operation.world, SLOTS=operation.SLOTS, FUSED=True, TMA=True, NVIDIA=True, EVEN=True, EARLY=early)
    m.launch(kernel, programs, {**args, "active": active}, {**flags, **chosen}, 4, 1, early=early)


def launch_with_movers(operation, kernel, tiles, args, constants, chosen, active, mover, programs, tickets, lane):
    """The same, and beside it on a lane `programs` programs of Triton's kernel that take no tiles and carry what is
    finished. Tiles never wait for them, so it does not matter which of the two starts first."""
    m = operation.machine
    if active:
        m.fork(lane)
    launch_warps(operation, kernel, tiles, args, constants, chosen, active, programs)
    carried = {name: plain_descriptor(value) for name, value in args.items()} | {"tickets": tickets, "active": active}
    shared = operation.shared(constants) | {"MOVERS_FIRST": 0, "MOVERS_LAST": programs}
    m.launch(mover, programs, carried, shared, constants["WARPS"], constants["STAGES"][m.target], lane=lane)
    if active:
        m.join(lane)


def plain_descriptor(value):
    """Triton's descriptor for Gluon's; anything else as it is."""
    if not hasattr(value, "block_shape"):
        return value
    return TensorDescriptor(value.base, value.shape, value.strides, value.block_shape)
