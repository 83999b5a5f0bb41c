"""The stream-level baseline: the op as its `fallback` runs it. Each statement in turn: the whole collective of the
process group, then the whole product of the library, then torch's pointwise kernels in f32. Nothing overlaps. A user's
kernel runs as its author wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from chunkdsl.cost.constants import Machine
from chunkdsl.cost.library import library_gemm_us
from chunkdsl.cost.work import body_us
from chunkdsl.ir.types import evaluate
from chunkdsl.lower.facts import ROWWISE
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.geometry import Geometry, nominal_size
from chunkdsl.plan.schedule import Launch, OpSchedule
from chunkdsl.record import record

NORM = (8, 4, 0, 0, 8, 8)  # bytes an element: square, mean, + eps, rsqrt, * x, * g


@record
class Stage:
    """One step of the baseline. kind: collective, product, pointwise. `us`: microseconds on the slowest rank."""

    kind: str
    what: str
    line: int
    us: float


def baseline(op: OpSchedule, world: int, dims: Mapping[str, int], machine: Machine) -> tuple[Stage, ...]:
    """The stages of one call, in order; `dims` binds every run-time dim."""
    if op.exchange:
        return tuple(_exchange_stages(op, world, dims, machine))
    copied = {n.destination.buffer for n in op.launches if n.destination.kind == "broadcast"}
    found = []
    for i, n in enumerate(op.launches):
        handed = [o for o in n.operands if o.source in copied]
        if not handed or n.products:  # else it fetches what the library's all-reduce has left in place
            made = i > 0 and bool(op.launches[i - 1].products)
            found += _stages(n, op, world, dims, machine, made)
    return tuple(found)


def _stages(
    n: Launch, op: OpSchedule, world: int, dims: Mapping[str, int], m: Machine, made: bool
) -> Iterator[Stage]:
    """`made`: what it adds up is a product's, which nobody else reads."""
    total, cols = evaluate(n.rows, dims), nominal_size(n.cols, dims, world)
    mine = Geometry.of(n.rows, False, op.pad, dims, world, 1, n.layout).shard
    rows = mine if n.space in ("own", "columns") else total
    for move in {m.buffer: m for m in n.moves if not m.leaving}.values():  # a plan's gather may have two carriers
        if move.kind == "gather":
            size = evaluate(n.gathered.size, dims) * nominal_size(move.cols, dims, world) * ITEM[move.dtype]
            yield Stage("collective", "all-gather", n.line, collective_us(size, world, 1, m))
        elif move.kind == "deal":
            size = total * evaluate(move.deal.cols.size, dims) * ITEM[move.dtype]
            yield Stage("collective", "all-to-all", n.line, collective_us(size / world, world, 1, m))
    if n.sums:
        size = total * cols * ITEM[n.sums.wire]
        everyone = n.destination.kind == "broadcast" or n.space in ("whole", "all")
        us = collective_us(size, world, 2 if everyone else 1, m, adds=True)
        if everyone and not made:
            us += _pass_us(2 * size, m)  # the library adds up in place, in a copy
        yield Stage("collective", "all-reduce" if everyone else "reduce-scatter", n.line, us)
    for product in n.products:
        us = library_gemm_us(rows, cols, nominal_size(n.depth, dims, world), n.a.dtype, m)
        yield Stage("product", f"{n.name}: {product.accumulator}", n.line, us)
    if n.body:
        yield Stage("product", f"{n.name}: {n.body.function}", n.line, _body_us(n, op, world, dims, m))
    if n.fold:
        read = nominal_size(n.depth, dims, world) * cols * ITEM[n.fold.operand.dtype]
        yield Stage("pointwise", n.name, n.line, _pass_us(read, m))
    us = sum(_pass_us(rows * cols * width, m) for width in _widths(n))
    if us:
        yield Stage("pointwise", n.name, n.line, us)
    if n.destination.deal:
        size = total * evaluate(n.destination.deal.cols.size, dims) * ITEM[n.destination.dtype]
        yield Stage("collective", "all-to-all", n.line, collective_us(size / world, world, 1, m))


def _body_us(n: Launch, op: OpSchedule, world: int, dims: Mapping[str, int], m: Machine) -> float:
    """A user's kernel as its author launches it, in whole waves of its grid."""
    sizes = {name: nominal_size(extent, dims, world) for name, extent in n.body.sizes}
    sizes |= {name: value for name, value in n.body.constants if isinstance(value, int)}
    programs = prod(max(1, evaluate(size, sizes)) for size in n.body.grid)
    if n.body.step:  # its grid is the machine's, each program does several tiles
        rows, cols = (nominal_size(e, dims, world) for e in n.body.tensors[-1].shape)
        programs = -(-rows // max(1, n.body.block)) * -(-cols // (n.body.column_block or cols))
    waves = -(-programs // m.gpu.multiprocessors)
    return m.kernels.kernel_us + waves * body_us(n.body, world, m)


def _exchange_stages(op: OpSchedule, world: int, dims: Mapping[str, int], m: Machine) -> Iterator[Stage]:
    """A small all-reduce: the library's, then what follows it, each step a kernel of torch."""
    x = op.exchange
    count = evaluate(x.rows, dims) * evaluate(x.cols.size, dims)
    size = count * ITEM[x.dtype]
    yield Stage("collective", "all-reduce", x.line, collective_us(size, world, 2, m, adds=True))
    us = 0.0
    for step in x.epilogue:
        if step.op == "rms_norm":
            us += sum(_pass_us(count * width, m) for width in NORM)
        elif step.op not in ("const", "load", "round"):
            us += _pass_us(3 * 4 * count, m)
    if us:
        yield Stage("pointwise", x.name, x.line, us)


def collective_us(size: float, world: int, trips: int, m: Machine, adds: bool = False) -> float:
    """A collective of the process group: of `size` bytes over all ranks each rank receives what the others have, once
    for each trip. Between nodes each byte goes to every node once, shared out over the links of its ranks, while it
    goes round within the nodes (NCCL's rings over several adapters); the slower of the two says how long."""
    if world == 1:
        return 0.0
    tiers = [(m.link, world, 1)] if m.outer is None else [(m.outer, world // m.inner, m.inner), (m.link, m.inner, 1)]
    flags = sum(trips * (ranks - 1) * link.flag_us for link, ranks, _ in tiers)
    busiest = 0.0
    for link, ranks, side in tiers:
        received = trips * size * (ranks - 1) / ranks / side
        summed = link.library_all_reduce_gbs if trips > 1 else link.library_reduce_gbs
        busiest = max(busiest, 1e-3 * received / (summed if adds else link.library_gbs))
    first = next(link for link, ranks, _ in tiers if ranks > 1)
    return first.library_us + flags - first.flag_us + busiest


def _pass_us(size: float, m: Machine) -> float:
    return m.kernels.pointwise_us + 1e-3 * size / m.gpu.memory_gbs


def _widths(n: Launch) -> Iterator[int]:
    """Bytes an element that each pointwise kernel of the statement reads and writes. What is loaded is widened to f32,
    products and sums come in their own dtype, and the value is narrowed in the end if it is wider than its dtype."""
    item = ITEM[n.destination.dtype]
    wide: dict[str | int | float, int] = {}
    roles = {o.name: o.role for o in n.operands}
    for step in n.epilogue:
        if step.op in ROWWISE:
            wide[step.target] = 4
            yield from NORM
        elif step.op == "load":
            wide[step.target] = 4
            if roles.get(step.args[0]) == "full":
                yield item + 4
        elif step.op != "const":
            args = [wide.get(a, item) for a in step.args if isinstance(a, str) and step.op != "round"]
            wide[step.target] = max(args, default=item)
            yield sum(args) + wide[step.target]
    if wide.get(n.value, item) > item:
        yield wide[n.value] + item
