"""A collective whose route is a plan: which plan that is, and what its policy may still say. Chooses like `choices`."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check import routes
from chunkdsl.check.meshes import hierarchy_needs_two_axes
from chunkdsl.check.policies import policy_key_fits_nothing
from chunkdsl.diagnostics import Label
from chunkdsl.ir.graph import Program, Value, axes_of
from chunkdsl.ir.meshes import World
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows, Place
from chunkdsl.lower.choices import MIB, Choices
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.form import Affine, Form
from chunkdsl.plan.halves import halves_of, why_whole
from chunkdsl.plan.hierarchical import hierarchical
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import Choice
from chunkdsl.plan.trace import MOST_PARTS
from chunkdsl.plan.trace_breaches import Breach

BUILT_ROUTES = ("direct", "swizzle", "ring")


def routing_of(value: Value, program: Program, settle: Choices) -> Routing | None:
    """The plan that a collective's policy names; None if it names none, or if that was refused (`settle.ok`)."""
    name, found = settle.policy.route, settle.settled.get((value, "route"))
    if name is None and found is not None and str(found.value).startswith("hierarchical("):
        name = settle.pick("route", "swizzle", "spreads the ranks' reads over different peers")
        settle.policy = replace(settle.policy, route=name)
    if name is None or name in BUILT_ROUTES:
        return None
    span = settle.span("route")
    if name.startswith("hierarchical("):
        return hierarchy_of(name, value, program, settle)
    routing = program.plans.get(name)
    if routing is None:
        settle.ok = False  # refused where it is declared
        return None
    axes = tuple(program.mesh.axes[i].name for i in axes_of(value))
    if (routing.contract, routing.axes) != (value.kind, axes):
        has = f"{routing.contract} over {', '.join(routing.axes)}"
        settle.refuse(routes.does_not_fit(name, has, f"{value.kind} over {', '.join(axes)}", span, None))
    refuse_idle(value, routing, program, settle)
    return routing if settle.ok else None


def refuse_idle(value: Value, routing: Routing, program: Program, settle: Choices) -> None:
    """A `via` or `chunk` of the policy that no step takes, as each says its own, and no other collective either."""
    for key in ("via", "chunk"):
        span = value.policy.spans.get(key)
        if span is None or takes(value, key, program):
            continue
        around = next((found for found in map(values_of, program.ops) if value in found), [])
        if not any(v.policy.spans.get(key) == span and takes(v, key, program) for v in around):
            places = (w.span for w in routing.ways if w.span is not None) if key == "via" else ()
            labels = tuple(Label(place, "a step says its own") for place in places)
            settle.refuse(policy_key_fits_nothing(key, span, f"step without a {key} of its own",
                                                  f"plan {routing.name}", labels))  # fmt: skip


def takes(value: Value, key: str, program: Program) -> bool:
    """Whether a collective makes anything of its policy's `via` or `chunk`, or all steps of its plan say the same."""
    routing = program.plans.get(value.policy.route or "")
    if routing is None:
        return True
    said = routing.vias if key == "via" else {routing.chunk}
    return None in said or said == {getattr(value.policy, key)}


def hierarchy_of(name: str, value: Value, program: Program, settle: Choices) -> Routing | None:
    """The routing of `hierarchical(outer, inner)`; None if it was refused. Its world sizes are those of both axes."""
    span, axes = settle.span("route"), axes_of(value)
    if len(axes) < 2:
        settle.refuse(hierarchy_needs_two_axes(value.kind, program.mesh.axes[axes[0]].name, span))
        return None
    outer, inner = name.removeprefix("hierarchical(").removesuffix(")").split(", ")
    line, parts = program.source.line_of(span.start), woven_parts(value, settle)
    return Routing(
        name, value.kind, tuple(program.mesh.axes[i].name for i in axes), line,
        lambda sizes: hierarchical(value.kind, sizes, outer, inner, line, parts),
        why_not="who sends what depends on both indices of a rank", fetches=False,
        watch=settle.report.watch,
    )  # fmt: skip


def woven_parts(value: Value, settle: Choices) -> int:
    """Into how many parts a route of two tiers cuts shards to weave the tiers: the chunks of a shard, where the policy
    says how many there are. Chunks of so many rows, or bytes, are as many as a call has rows for."""
    found = settle.settled.get((value, "chunk"))
    chunk = settle.policy.chunk or (found and found.value)
    if value.kind != "all_gather" or not isinstance(chunk, ChunkCount):
        return 1
    return max(n for n in range(1, min(chunk.count, MOST_PARTS) + 1) if chunk.count % n == 0)


def built_in(settle: Choices, routing: Routing) -> str | None:
    """The route of the language that a plan is another name of: then that one is taken. None for others."""
    form, exchange = routing.form, routing.contract == "all_to_all"
    if form is None or (form.fetch and not exchange) or routing.vias != {None} or routing.chunk is not None:
        return None
    forms = {
        "ring": Form(Affine(-1, 1, -1), Affine(1, 1, 0), False),
        "swizzle": Form(Affine(1, 1, 1), Affine(1, 1, 1), form.fetch),
    }
    name = next((name for name, same in forms.items() if same == form), None)
    if name is not None and exchange:
        side = "pull" if form.fetch else "push"
        if settle.policy.side not in (None, side):
            settle.refuse_transport(f"route = {routing.name}, side = {settle.policy.side}", "the plan says who sends",
                                    "side")  # fmt: skip
        settle.policy = replace(settle.policy, side=side)
    if name is not None:
        why = f"{form.text()}: what route = {name} does"
        settle.record.append(Choice(settle.where, f"plan {routing.name}", "parametric", why))
        settle.policy = replace(settle.policy, route=name)
    return name


def settle_halves(settle: Choices, routing: Routing, algorithm: str, world: World) -> tuple[Routing, Routing] | None:
    """The sums and the results of an all-reduce along a plan; None if its sums travel as the plan says, or if it was
    refused (`settle.ok`)."""
    if algorithm != "two_shot":
        settle.refuse_transport(f"route = {routing.name}, algorithm = {algorithm}",
                                "a plan adds up, then hands out", "algorithm")  # fmt: skip
        return None
    why = why_whole(routing, world)
    if not why:
        return halves_of(routing)
    settle.record.append(Choice(settle.where, f"plan {routing.name}", "whole sums travel", f"no two halves: {why}"))
    refuse_breaches(settle, routing.differing(world))
    return None


def settle_exchange(value: Value, program: Program, settle: Choices, product: bool = False) -> Routing | None:
    """The plan that an all_to_all names; None if it names none, or the swizzle of the language, pushed or pulled.
    `product`: its tiles send what they make, straight to where it belongs, and that is pushed."""
    routing = routing_of(value, program, settle)
    if routing is None or (product and routing.fetches):
        return routing
    return None if built_in(settle, routing) is not None else routing


def settle_blocks(settle: Choices, routing: Routing, onto: str, product: bool = False) -> dict:
    """via, side, place and order of an all_to_all along a plan; `route` is None. `product`: of what tiles make."""
    why = f"no parametric form: {routing.why_not}" if routing.form is None else "its form is none of the language's"
    settle.record.append(Choice(settle.where, f"plan {routing.name}", "a table", why))
    vias, _ = vias_of(settle, routing, "blocks begin at any column")
    place = settle.pick("place", Place("own_sms", 16), "16 programs fill a link", "own_sms(16)")
    order = settle.pick("order", "arrival", "what travels first is computed first" if product else
                        "tiles start with what is there")  # fmt: skip
    side, name = settle.policy.side, routing.name
    if vias != {"ldst"}:
        refuse_via(settle, routing, min(vias - {"ldst"}), "a plan's blocks go by ordinary stores")
    elif side is not None:
        settle.refuse_transport(f"route = {name}, side = {side}", "the plan says who sends", "side")
    elif place.kind != "own_sms":
        settle.refuse_transport(f"route = {name}, place = {place.kind}", "a plan has programs of its own", "place")
    elif order == "local_first" and onto == "rows" and not product:
        settle.refuse_transport(f"order = {order}", "its tiles are of one shard, the rank's own", "order")
    return dict(route=None, via="ldst", side="push", place=place, order=order, routing=routing)


def settle_sum(settle: Choices, routing: Routing) -> dict:
    """via, side, place and order of a reduce-scatter along a plan, or of an all-reduce whose sums travel; `route` is
    None."""
    why = f"no parametric form: {routing.why_not}" if routing.form is None else "its form is none of the language's"
    settle.record.append(Choice(settle.where, f"plan {routing.name}", "a table", why))
    vias, _ = vias_of(settle, routing, "a plan adds on the way, and only programs do")
    place = settle.pick("place", Place("own_sms", 16), "16 programs fill a link", "own_sms(16)")
    order = settle.pick("order", "arrival", "what travels first is computed first")
    reduce = settle.pick("reduce", "fixed", "the plan's order, the same on every run")
    side, name = settle.policy.side, routing.name
    if vias != {"ldst"}:
        refuse_via(settle, routing, min(vias - {"ldst"}), "a plan adds on the way")
    elif side is not None:
        settle.refuse_transport(f"route = {name}, side = {side}", "the plan says who sends", "side")
    elif place.kind != "own_sms":
        settle.refuse_transport(f"route = {name}, place = {place.kind}", "a plan has programs of its own", "place")
    elif reduce != "fixed":
        settle.refuse_transport(f"route = {name}, reduce = {reduce}", "the plan says in which order", "reduce")
    elif order == "interleaved":
        settle.refuse_transport(f"route = {name}, order = {order}", "a plan's programs carry shard by shard", "order")
    return dict(route=None, via="ldst", side="push", place=place, order=order, reduce=reduce, routing=routing)


def vias_of(settle: Choices, routing: Routing, why: str) -> tuple[set[str], str]:
    """All ways in which the steps of a plan travel, and that of those which say nothing: what the op says, or ldst."""
    otherwise = settle.pick("via", "ldst", why) if None in routing.vias else "ldst"
    return {via or otherwise for via in routing.vias}, otherwise


def refuse_via(settle: Choices, routing: Routing, via: str, why: str) -> None:
    """At the step that says so, in the spec or in a plan file; else where the op does."""
    way = next((w for w in routing.ways if w.via == via), None)
    place = f" ({way.place})" if way is not None and way.place else ""
    span = way.span if way is not None and way.span is not None else None
    settle.refuse_transport(f"route = {routing.name}, via = {via}{place}", why, "via", span)


def settle_gather(settle: Choices, routing: Routing, half: bool = False) -> dict:
    """via, side, place and order of an all-gather along a plan; `route` is None. `half`: it hands out the results of an
    all-reduce, whose policy is for its sums too. `routing` becomes the part that the
    launch's programs carry, `copied` that of copy engines; where there is but one, it is the `routing`."""
    form = "parametric" if routing.form else "a table"
    why = routing.form.text() if routing.form else f"no parametric form: {routing.why_not}"
    settle.record.append(Choice(settle.where, f"plan {routing.name}", form, why))
    vias, otherwise = vias_of(settle, routing, "a plan forwards, and copy engines do not wait")
    programs, copies = vias - {"copy_engine"}, vias & {"copy_engine"}
    via = "tma" if "tma" in vias else "ldst" if programs else "copy_engine"
    place = None if half and not programs else settle.policy.place
    if programs:
        place = settle.pick("place", Place("own_sms", 16), "16 programs fill a link", "own_sms(16)")
    order = settle.pick("order", "arrival", "tiles start with what is there")
    given = settle.policy.side
    if programs - {"ldst", "tma"}:
        refuse_via(settle, routing, min(programs - {"ldst", "tma"}), "a plan's chunks go to one rank each")
    elif copies and not routing.ways:
        refuse_via(settle, routing, "copy_engine", "copy engines do not wait, and the tiers forward")
    elif not programs and place is not None:
        settle.refuse_transport(f"route = {routing.name}, place = {place.kind}", "copy engines carry all of its steps",
                                "place")  # fmt: skip
    elif given is not None:
        settle.refuse_transport(f"route = {routing.name}, side = {given}", "the plan says who sends and who fetches",
                                "side")  # fmt: skip
    elif programs and place.kind != "own_sms":
        settle.refuse_transport(f"route = {routing.name}, place = {place.kind}", "a plan has programs of its own",
                                "place")  # fmt: skip
    found = dict(route=None, via=via, side="push", place=place, order=order, routing=routing, copied=None)
    if copies:
        found |= dict(routing=routing.part(not programs, otherwise))
        found |= dict(copied=routing.part(True, otherwise) if programs else None)
    return found | dict(otherwise=otherwise if len(programs) > 1 else "")


def chunk_of(settle: Choices, routing: Routing, row_bytes: int, shard: int, world: World) -> ChunkRows | ChunkCount:
    """Chunks that make up the plan's parts. `row_bytes`: bytes of a row; `shard`: rows of one at the bounds."""
    chunk, parts = routing.chunk or settle.policy.chunk, routing.parts(world)
    if chunk is None and parts > 1:
        each = parts * -(-shard * row_bytes // (parts * 4 * MIB))
        chunk = settle.pick("chunk", ChunkCount(each), f"chunks of at most 4 MiB that make up {parts} parts",
                            f"{each} per shard")  # fmt: skip
    elif chunk is None:
        chunk = settle.chunk_rows(row_bytes)
    elif isinstance(chunk, ChunkBytes):
        chunk = ChunkRows(max(1, chunk.count // max(1, row_bytes)), "")
    refuse_breaches(settle, routing.uneven(chunk, world))
    return chunk


def refuse_breaches(settle: Choices, *breaches: Breach | None) -> None:
    """What is wrong with a route for the ranks that the mesh declares."""
    for breach in breaches:
        if breach is not None:
            settle.refuse(routes.explain_breach(breach, settle.report.source))
