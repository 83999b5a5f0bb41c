"""The stream-level baseline: the op as its `fallback` runs it. Each statement in turn: the whole collective of the
process group, then the whole product of the library, then torch's pointwise kernels in f32. Nothing overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chunkdsl.cost.constants import Machine
from chunkdsl.ir.types import evaluate
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.geometry import Geometry, nominal_size
from chunkdsl.plan.schedule import Launch, OpSchedule
from chunkdsl.record import record

# Tiles that a library chooses from, and what a smaller one keeps of the largest one's rate.
LIBRARY_TILES = ((128, 256, 1.0), (128, 128, 0.9), (64, 128, 0.75), (64, 64, 0.55))


@record
class Stage:
    """One step of the baseline. kind: collective, product, pointwise. `us`: microseconds on the slowest rank."""

    kind: str
    what: str
    line: int
    us: float


def baseline(op: OpSchedule, world: int, dims: Mapping[str, int], machine: Machine) -> tuple[Stage, ...]:
    """The stages of one call, in order; `dims` binds every run-time dim."""
    copied = {n.destination.buffer for n in op.launches if n.destination.kind == "broadcast"}
    found = []
    for n in op.launches:
        handed = [o for o in n.operands if o.source in copied]
        if not handed or n.products:  # else it fetches what the library's all-reduce has left in place
            found += _stages(n, op, world, dims, machine)
    return tuple(found)


def _stages(n: Launch, op: OpSchedule, world: int, dims: Mapping[str, int], m: Machine) -> Iterator[Stage]:
    total, cols = evaluate(n.rows, dims), nominal_size(n.cols, dims, world)
    rows = Geometry.of(n.rows, False, op.pad, dims, world, 1, n.layout).shard if n.space == "own" else total
    for move in n.moves:
        if move.kind == "gather":
            size = total * nominal_size(move.cols, dims, world) * ITEM[move.dtype]
            yield Stage("collective", "all-gather", n.line, collective_us(size, world, 1, m.link.library_gbs, m))
    if n.sums:
        size = total * cols * ITEM[n.sums.wire]
        everyone = n.destination.kind == "broadcast" or n.space == "whole"
        us = collective_us(size, world, 2 if everyone else 1, m.link.library_reduce_gbs, m)
        if everyone:
            us += _pass_us(2 * size, m)  # the library adds up in place, in a copy
        yield Stage("collective", "all-reduce" if everyone else "reduce-scatter", n.line, us)
    for product in n.products:
        us = library_gemm_us(rows, cols, nominal_size(n.depth, dims, world), n.a.dtype, m)
        yield Stage("product", f"{n.name}: {product.accumulator}", n.line, us)
    us = sum(_pass_us(rows * cols * width, m) for width in _widths(n))
    if us:
        yield Stage("pointwise", n.name, n.line, us)


def library_gemm_us(rows: int, cols: int, depth: int, dtype: str, m: Machine) -> float:
    """[rows, depth] @ [depth, cols] by the library: the best of its tiles, in whole waves."""
    gpu, best = m.gpu, None
    rate = gpu.gflops[dtype] * gpu.library_loop / gpu.multiprocessors
    for bm, bn, kept in LIBRARY_TILES:
        waves = -(-(-(-rows // bm) * -(-cols // bn)) // gpu.multiprocessors)
        us = waves * 2e-3 * bm * bn * depth / (rate * kept)
        best = us if best is None else min(best, us)
    return m.kernels.library_gemm_us + best


def collective_us(size: int, world: int, trips: int, gbs: float, m: Machine) -> float:
    """A collective of the process group: of `size` bytes over all ranks each rank receives what the others have, once
    for each trip."""
    if world == 1:
        return 0.0
    steps = trips * (world - 1)
    received = trips * size * (world - 1) / world
    return m.link.library_us + (steps - 1) * m.link.flag_us + 1e-3 * received / gbs


def _pass_us(size: float, m: Machine) -> float:
    return m.kernels.pointwise_us + 1e-3 * size / m.gpu.memory_gbs


def _widths(n: Launch) -> Iterator[int]:
    """Bytes an element that each pointwise kernel of the statement reads and writes. What is loaded is widened to f32,
    products and sums come in their own dtype, and the value is narrowed in the end if it is wider than its dtype."""
    item = ITEM[n.destination.dtype]
    wide: dict[str | int | float, int] = {}
    roles = {o.name: o.role for o in n.operands}
    for step in n.epilogue:
        if step.op == "load":
            wide[step.target] = 4
            if roles.get(step.args[0]) == "full":
                yield item + 4
        elif step.op != "const":
            args = [wide.get(a, item) for a in step.args if isinstance(a, str) and step.op != "round"]
            wide[step.target] = max(args, default=item)
            yield sum(args) + wide[step.target]
    if wide.get(n.value, item) > item:
        yield wide[n.value] + item
