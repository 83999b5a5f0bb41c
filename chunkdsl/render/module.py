"""Schedule -> text of a module. Deterministic: the same schedule and path give the same bytes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from types import SimpleNamespace

import chunkdsl
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.ir.meshes import World, route_world
from chunkdsl.ir.types import DimRef
from chunkdsl.plan.body import KernelBody, stagings
from chunkdsl.plan.geometry import rows_apart
from chunkdsl.plan.limits import SHARED_BYTES, stages_for, tile_columns
from chunkdsl.plan.schedule import Extent, Launch, OpSchedule, Parameter, Result, Schedule
from chunkdsl.plan.tables import route_tables
from chunkdsl.plan.tile_kernels import most_ranks, registers_of, shapes_of, warp_tiles
from chunkdsl.render.environment import TORCH, environment, flops_text, plain_step
from chunkdsl.render.exchange import render_exchange
from chunkdsl.render.inline import needed_helpers
from chunkdsl.render.memory import memory_entries
from chunkdsl.render.route_sums import places_by_ranks
from chunkdsl.render.sizes import dim_text
from chunkdsl.render.straight import straight_steps
from chunkdsl.render.units import is_even, vector_of
from chunkdsl.render.view import LaunchView, cut_before, extent_text

BASE_IMPORTS = ("import torch", "import triton", "import triton.language as tl")


def render_module(schedule: Schedule, proven: tuple[World, ...], command: str = "") -> str:
    """Text of the module. `proven`: the world sizes that its proofs cover."""
    title = class_name(schedule.path)
    axes = [a.name for a in schedule.mesh.axes] if len(schedule.mesh.axes) > 1 else []
    given: set[str] = set()
    ops = [render_op(op, schedule, proven, given) for op in schedule.ops]
    always = ("Instance", "register_operators", *(["MeshRanks"] if axes else []))
    helpers = needed_helpers([*(k for op in ops for k in op.kernels), *(op.text for op in ops), *always])
    own = {line for op in schedule.ops for n in op.launches if n.body for line in n.body.imports}
    imports = sorted({*BASE_IMPORTS, *own, *(line for h in helpers for line in h.imports)})
    return (
        environment()
        .get_template("module.py.jinja")
        .render(
            title=title,
            axes=axes,
            version=chunkdsl.__version__,
            path=schedule.path,
            digest=schedule.digest,
            tuning=schedule.tuning,
            command=command or f"chunkdsl build {schedule.path}",
            ops=ops,
            proven=proven,
            imports=arrange_imports(imports),
            helpers="\n\n\n".join(h.text for h in helpers),
            constants=[
                (n.name.upper(), constants_of(n, op)) for op in schedule.ops for n in op.launches if not n.library
            ],
            ranges=schedule.ranges,
            namespace=namespace(schedule),
            tensors=declared_tensors(schedule),
            table="LayoutTable" if any(map(has_layouts, schedule.ops)) else "PlacementTable",
        )
    )


def declared_tensors(schedule: Schedule) -> list[Parameter]:
    """Tensors of the spec that its ops take, each once."""
    derived = {g.backward for g in schedule.gradients}
    found = {p.name: p for op in schedule.ops if op.name not in derived for p in op.parameters}
    return list(found.values())


def namespace(schedule: Schedule) -> str:
    """Of the module's torch operators: equal for equal specs, other for others of the same name."""
    stem = re.sub(r"\W", "_", PurePosixPath(schedule.path).name.removesuffix(".chunk"))
    return f"chunkdsl_{stem}_{schedule.digest[:8]}"


def class_name(path: str) -> str:
    """tp_mlp.chunk -> TpMlp."""
    stem = PurePosixPath(path).name.removesuffix(".chunk")
    parts = [p for p in "".join(c if c.isalnum() else " " for c in stem).split()]
    name = "".join(p[:1].upper() + p[1:] for p in parts)
    return name if name[:1].isalpha() else f"Module{name}"


def arrange_imports(lines: list[str]) -> str:
    """Standard library, then torch and triton; in each, plain imports first."""

    def block(outer: bool) -> str:
        mine = [line for line in lines if (" torch" in line or " triton" in line) == outer]
        return "\n".join(sorted(mine, key=lambda line: (line.startswith("from"), line)))

    return "\n\n".join(filter(None, (block(False), block(True))))


def constants_of(launch: Launch, op: OpSchedule) -> str:
    """The launch's tile and pipeline depth for each target, as Python."""
    t, n = launch.tiling, max(1, len(launch.products))
    narrow = tile_columns("sm_80", t.bm, t.bn, n)
    stages = {"all": 1}
    if launch.body:
        stages = {"all": t.stages}
    if launch.products:
        widths = {target: tile_columns(target, t.bm, t.bn, n) for target in SHARED_BYTES}
        stages = {
            target: max(1, stages_for(target, (t.bm + bn * n) * t.bk * itemsize(launch), t.stages))
            for target, bn in widths.items()
        }
    pairs = dict(BM=t.bm, BN=t.bn, BK=t.bk, GROUP=8, PIECE=t.piece_rows, PIECE_COLS=t.piece_cols)
    pairs |= dict(NARROW_BN=narrow, WARPS=t.warps, STAGES=stages)
    if launch.warps:
        w, (wide, narrow_warps) = warp_tiles(), registers_of(launch, op)
        shapes = tuple((s.columns, s.stages, s.time) for s in shapes_of(launch))
        least = dict(DEPTH=w.depth)
        most = most_ranks(launch, op)
        least |= dict(MOST_RANKS=most) if most else {}
        pairs["WARP_TILES"] = dict(TRITON=w.triton, SHAPES=shapes, WIDE=wide, NARROW=narrow_warps, **least)
    body = "\n".join(f"    {k}={v}," for k, v in pairs.items()).replace("'", '"')
    return f"dict(\n{body}\n)"


def itemsize(launch: Launch) -> int:
    return 4 if launch.a and launch.a.dtype == "f32" else 2


def definitions_of(body: KernelBody, given: set[str]) -> list[str]:
    """A user's kernel as its author wrote it, and by ticket; `given` has the texts that the module holds already."""
    head = f"# chunk: {body.path}:{body.line}  {body.function}, as its author wrote it"
    tail = f"# chunk: {body.function} as a function of its program ids"
    found = []
    for comment, texts in ((head, body.untouched), (tail, body.by_ticket)):
        new = [text for _, text in texts if text not in given]
        given.update(new)
        if new:
            found.append("\n\n\n".join([f"{comment}\n{new[0]}", *new[1:]]))
    return found


def moves_only(launch: Launch, op: OpSchedule, held) -> bool:
    """Does the fallback of this epilogue pass on what a collective brought, and nothing else? Then no f32 is needed in
    between. Not of what the caller passed, nor where two results could come to be one tensor."""
    sources = {o.name: held(o.source) for o in launch.operands}
    brought = (s.op == "round" or (s.op == "load" and sources[s.args[0]].startswith("at_")) for s in launch.epilogue)
    return len(op.results) == 1 and not launch.body and all(brought)


def render_op(op: OpSchedule, schedule: Schedule, proven: tuple[int, ...], given: set[str]) -> SimpleNamespace:
    """Kernels and wrapper class of one op, as text. `given`: definitions of users' kernels that earlier ops print."""
    if op.exchange:
        return render_exchange(op, schedule, gradient_of(op, schedule))
    env = environment().overlay()
    sites = {f.name: i for i, f in enumerate(op.flags)}
    lines = {f.name: next((n.line for n in op.launches if f.name in str(n)), op.line) for f in op.flags}
    site_texts = [f"{schedule.path}:{lines[f.name]} {op.name}: wait for {f.name}" for f in op.flags]
    site_texts.append(f"{schedule.path}:{op.line} {op.name}: closing barrier")
    views = [LaunchView(n, op, sites) for n in op.launches]
    link_views(views, op)
    buffers = {b.name: b for b in op.buffers}

    def held(source: str) -> str:
        b = buffers.get(source)
        return f"{source}_" if b is None else f"at_{source}" if b.kind == "symmetric" else f"self._{source}"

    def plain_held(source: str) -> str:
        b = buffers.get(source)
        if "[" in source:  # a matrix of a stack
            return f"{source.replace('[', '_at').removesuffix(']')}"
        return f"at_{source}" if b is not None and b.kind == "symmetric" else f"{source}_"

    def plain_result(result: Result) -> str:
        if len(result.shape) < 3:
            return f"{result.name}_"
        return f"torch.stack(({', '.join(map(plain_held, result.written))},))"

    env.filters = environment().filters | {
        "local": lambda extent: extent_text(extent, op.nested),
        "flops": lambda launch: flops_text(launch, op.nested),
        "held": held,
        "plain_held": plain_held,
        "plain_name": plain_held,
        "plain_result": plain_result,
        "plain_step": lambda step, launch: plain_step(step, launch, plain_held, moves_only(launch, op, plain_held)),
    }
    kernels = []
    for view in (v for v in views if not v.launch.library):
        if view.body:
            kernels += definitions_of(view.launch.body, given)
        text = env.get_template("tiles.py.jinja").render(launch=view.launch, op=op, view=view, path=schedule.path)
        kernels.append(text.strip("\n"))
        if view.warps:
            text = env.get_template("warps.py.jinja").render(launch=view.launch, op=op, view=view, path=schedule.path)
            kernels.append(text.strip("\n"))
    inputs = ", ".join(f"{p.name}_" for p in op.parameters)
    context = dict(
        op=op,
        proven=list(dict.fromkeys(route_world(schedule.mesh, op.over, w) for w in proven)),
        tables=list(route_tables(op)),
        views=views,
        ranges=schedule.ranges,
        sites=site_texts,
        class_name="_" + "".join(p[:1].upper() + p[1:] for p in op.name.split("_")),
        arguments=", ".join(f"{x.name}_" for x in (*op.parameters, *op.results)),
        inputs=inputs,
        lanes=[c.name for v in views for c in v.copies],
        beside=[f"{v.launch.name}_movers" for v in views if v.warps and v.own_last],
        host_word=any(v.copies for v in views),
        gathered=gathered(op),
        stays=list(op.stays.values()),
        stage_block=(stage_tiling(op).piece_rows, stage_tiling(op).piece_cols),
        matrices=matrices(op),
        whole=whole_blocks(op),
        path=schedule.path,
        gradient=gradient_of(op, schedule),
        straight=straight_steps(op),
        warp_columns=dict.fromkeys(s.columns for n in op.launches if n.warps for s in shapes_of(n)),
        places=places_by_ranks(op, [route_world(schedule.mesh, op.over, w) for w in proven]),
        memory=memory_entries(op, TORCH),
        plain_names=plain_names(views),
        base="LayoutOperation" if has_layouts(op) else "Operation",
        table="LayoutTable" if has_layouts(op) else "PlacementTable",
    )
    macros, plain = (env.get_template(f"_{name}.py.jinja").make_module(context) for name in ("operation", "plain"))
    text = env.get_template("operation.py.jinja").render(**context, macros=macros, plain=plain)
    return SimpleNamespace(
        name=op.name,
        class_name=context["class_name"],
        parameters=op.parameters,
        results=op.results,
        schedule=op,
        kernels=kernels,
        text=text.strip("\n"),
    )


def gradient_of(op: OpSchedule, schedule: Schedule) -> SimpleNamespace:
    """The op that runs in this one's place where a gradient is wanted, and what the backward pass of this one takes."""
    forward = next((g.forward for g in schedule.gradients if g.op == op.name), "")
    backward = next(((g.backward, g.wanted) for g in schedule.gradients if g.forward == op.name), ())
    wanted = str(backward).replace("'", '"') if backward else ""
    return SimpleNamespace(forward=forward, wanted=wanted)


def has_layouts(op: OpSchedule) -> bool:
    """Are there shards of the op, or tiles that go through some, that are not contiguous?"""
    extents = (e.layout for x in (*op.parameters, *op.results) for e in x.shape)
    return any(layout != CONTIGUOUS for layout in (*extents, *(n.layout for n in op.launches)))


def stage_tiling(op: OpSchedule):
    return op.launches[0].tiling


def gathered(op: OpSchedule) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(parameter, gathered buffer, its row dim, axes that cut it before those of the op), for parameters that may be
    produced in place. Not those that stay where they are: they have no place there."""
    names = {p.name for p in op.parameters}
    found = []
    for n in op.launches:
        for s in stagings(n):
            if not s.deal and s.buffer not in op.stays and s.source in names:
                rows, before = cut_before(s.rows)
                found.append((s.source, s.buffer, rows.name if isinstance(rows, DimRef) else "", before))
    return found


def plain_names(views: list[LaunchView]) -> str:
    """What the fallback needs of its surroundings."""
    wanted = ["m"] if any(v.launch.staging or v.launch.sums or v.launch.destination.deal for v in views) else []
    wanted += ["W"] if any(v.scattered or ((s := v.launch.staging) and not s.deal) for v in views) else []
    wanted += ["rank"] if any(v.scattered for v in views) else []
    if any(v.body for v in views):
        wanted = ["m", "W", "rank"]
    wanted += ["inner"] if "W" in wanted and views[0].op.nested else []
    values = {"m": "self.machine", "W": "self.world", "rank": "self.rank", "inner": "self.inner"}
    return f"{', '.join(wanted)} = {', '.join(values[w] for w in wanted)}" if wanted else "# local"


def whole_blocks(op: OpSchedule) -> list[tuple[int, int, str]]:
    """(size, elements of a block, what they are) of sharded sizes of which users' kernels take whole blocks."""
    return [
        (extent.size, dict(n.body.whole)[name], f"{name} of {n.body.function}")
        for n in op.launches if n.body for name, extent in n.body.sizes
        if name in dict(n.body.whole) and extent.sharded and isinstance(extent.size, int)
    ]  # fmt: skip


def matrices(op: OpSchedule) -> list[str]:
    """Parameters and results whose rows must be multiples of 16 bytes: operands of products, what is staged, tensors of
    which a user's kernel takes a descriptor."""
    sources = {o.source for n in op.launches if n.a for o in (n.a, *(p.b for p in n.products))}
    sources |= {n.fold.operand.source for n in op.launches if n.fold}
    sources |= {s.source for n in op.launches for s in stagings(n) if not s.deal}
    described = {t.source for n in op.launches if n.body for t in n.body.tensors if len(t.block) > 1}
    return sorted(((sources | described) & {p.name for p in op.parameters}) | described & {r.name for r in op.results})


def even_text(cols: Extent) -> str:
    """Whether all blocks of an all_to_all begin and end at multiples of EVEN_COLUMNS."""
    size = dim_text(cols.size, "dims")
    return f"{is_even(size)} and {is_even(f'cdiv({size}, W)')}"


def link_views(views: list[LaunchView], op: OpSchedule) -> None:
    """Facts of a launch that lie in another one: where its partial sums are read, whether the sum is scattered."""
    for i, v in enumerate(views):
        n = v.launch
        v.uses_tma = bool(n.products) or n.destination.via == "tma" or any(m.via == "tma" for m in v.moves)
        v.uses_tma |= bool(v.body) and v.body.describes
        v.by_pointers = rows_apart(n)
        v.uses_tma &= not v.by_pointers
        dealt = [x.deal.cols for x in (n.destination, *n.moves) if x.deal]
        carried = [m for m in v.moves if not m.deal and m.cols != n.cols]
        widths = dict.fromkeys(f"{extent_text(m.cols, op.nested)} % {vector_of(m.dtype)} == 0" for m in carried)
        spans = [is_even("span")] if n.ahead else []
        spans += [is_even("depth")] if v.walked else []
        spans += [is_even("shard")] if n.over and n.space == "all" else []  # columns of the left operand
        v.even = " and ".join([is_even("n"), *spans, *widths, *(even_text(cols) for cols in dealt)])
        v.even = v.body.even if v.body else v.even
        v.parts_buffer, v.parts_are_new = "", i > 0 and bool(views[i - 1].launch.products)
        if n.destination.kind in ("push", "publish", "hand_over") and not n.destination.deal:
            v.parts_buffer = views[i + 1].launch.sums.parts.name
            v.along = views[i + 1].exact_sum if views[i + 1].launch.sums.routing else ""
            v.sent_whole = bool(v.along) and views[i + 1].launch.space == "all"
        v.cut_evenly = n.layout == CONTIGUOUS
        v.scattered = bool(n.sums) and n.space == "own" and n.destination.kind == "local"
        symmetric = {b.name for b in op.buffers if b.kind == "symmetric"}
        reads = [o.source for o in ([n.a] if n.a else []) + list(n.operands) + list(n.body.tensors if n.body else ())]
        reads += [p.b.source for p in n.products] + ([n.fold.operand.source] if n.fold else [])
        reads += [o.source for o in v.total.launch.operands] if v.total else []
        reads = [r for r in reads if not n.body or r != n.destination.buffer]
        v.read_here = sorted({s for s in reads if s in symmetric})
