"""Plans made elsewhere -> routes: our own JSON, MSCCL's algorithms (XML), MSCCL++'s execution plans (JSON).

A file is read whole or refused whole, at the place of what is wrong; nothing of it is left out. Opens no files, and
does not judge whether a route keeps its contract where the file's own rules do not say so: `plan/trace` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from chunkdsl.plan.importers.fault import Kind, PlanFileError, malformed, misfit, unsupported
from chunkdsl.plan.importers.follow import follow
from chunkdsl.plan.importers.json_text import Json, read_json
from chunkdsl.plan.importers.msccl import read_msccl
from chunkdsl.plan.importers.mscclpp import read_mscclpp
from chunkdsl.plan.importers.route_json import dump_route, read_route
from chunkdsl.plan.importers.xml_text import read_xml
from chunkdsl.plan.steps import Route
from chunkdsl.source import Source, Span

LARGEST_FILE = 4 << 20  # bytes

__all__ = ["LARGEST_FILE", "Kind", "PlanFileError", "dump_route", "import_plan", "load_route"]


def import_plan(text: str, name: str, contract: str, axes: tuple[int, ...]) -> Route:
    """The route in a plan file, under the spec's name for it. `axes`: sizes of the mesh axes that the spec wants it to
    run over, outer first. PlanFileError for a file that is wrong, unsupported, or of another contract or world size."""
    line_of = Source("", text).line_of
    read = _from_xml if text.lstrip().startswith("<") else _from_json
    route, says_contract, says_world = read(text, axes, line_of)
    if route.contract != contract:
        raise misfit(f"the plan is of {route.contract}, and {contract} is asked for", says_contract,
                     help=f"write `: {route.contract} over ...`, or name another file")  # fmt: skip
    if route.world != prod(axes):
        raise misfit(f"the plan is for {route.world} ranks, and the mesh declares {prod(axes)}", says_world,
                     help="a plan file serves its own world size only")  # fmt: skip
    return replace(route, name=name, axes=axes)


def load_route(text: str) -> Route:
    """What `dump_route` wrote. PlanFileError for anything else."""
    return read_route(read_json(text))


def _from_xml(text: str, axes: tuple[int, ...], line_of: Callable[[int], int]) -> tuple[Route, Span, Span]:
    """The route, and where the file says its contract and its world size."""
    algo = read_xml(text)
    return follow(read_msccl(algo), axes, line_of), algo.place("coll"), algo.place("ngpus")


def _from_json(text: str, axes: tuple[int, ...], line_of: Callable[[int], int]) -> tuple[Route, Span, Span]:
    """The same."""
    plan = read_json(text)
    members = plan.data if isinstance(plan.data, dict) else {}
    if "gpus" in members:
        return follow(read_mscclpp(plan), axes, line_of), members["collective"].span, plan.keys["gpus"]
    if "steps" in members:
        route = read_route(plan, line_of)
        _same_chunks(plan, route)
        return route, members["contract"].span, members["axes"].span
    if "tasks" in members:
        raise malformed("this is a whole plan, with tiles and signals, for reading", plan.keys["tasks"],
                        help="`chunkdsl plan SPEC --route NAME` writes a route that `use plan` takes")  # fmt: skip
    raise _unknown(plan)


def _same_chunks(plan: Json, route: Route) -> None:
    """All steps of a plan cut shards alike, as those of a plan of the spec do."""
    steps = [s for mine in route.steps for s in mine]
    for node, step in zip((s for mine in plan.member("steps").data for s in mine.data), steps, strict=True):
        if step.chunk != steps[0].chunk:
            raise unsupported("a plan whose steps have different chunks", node.span,
                              help="give all steps the same `chunk`, or leave it out")  # fmt: skip


def _unknown(plan: Json) -> PlanFileError:
    return malformed(
        f"{plan.kind}, and neither a route of chunkdsl (an object with \"steps\") nor an execution plan of MSCCL++ "
        "(one with \"gpus\")", Span(plan.span.start, plan.span.start + 1),
        help="MSCCL's algorithms are XML; grammars/plan_formats.md describes all three",
    )  # fmt: skip
