"""`use plan` items: the file is read and becomes a route, which is followed as a plan of the spec is. The file's path
is relative to the spec. Chooses nothing: the collective that takes the plan does.
"""

from __future__ import annotations

import os
import stat
from math import prod

from chunkdsl.check import imports
from chunkdsl.check.plans import line_span
from chunkdsl.diagnostics import Report
from chunkdsl.ir.meshes import World, ranks_of, world_text
from chunkdsl.ir.policy import ChunkRows
from chunkdsl.ir.types import Mesh
from chunkdsl.lower.names import Names
from chunkdsl.lower.plans import plan_axes
from chunkdsl.plan.importers import LARGEST_FILE, PlanFileError, import_plan
from chunkdsl.plan.importers.fault import misfit
from chunkdsl.plan.routing import Routing, Way
from chunkdsl.plan.steps import Route
from chunkdsl.plan.trace_breaches import Breach
from chunkdsl.source import Source
from chunkdsl.syntax import nodes

_MARK = b"\xef\xbb\xbf"


def declare_use_plan(
    item: nodes.UsePlan, source: Source, names: Names, mesh: Mesh | None, imported: list[str], report: Report
) -> Routing | None:
    """The routing of a plan file, for its own world size only; None if something was reported. The file's text is added
    to `imported`."""
    axes = plan_axes(item, names, mesh, report)
    if axes is None:
        return None
    file = _read(item, source, report)
    if file is None:
        return None
    try:
        sizes = tuple(mesh.axes[i].size for i in axes)
        route = import_plan(file.text, item.name.text, item.contract.text, sizes)
    except PlanFileError as error:
        report.add(imports.explain_error(file, error, item.path.span))
        return None
    first = next((s for steps in route.steps for s in steps), None)
    if first is not None and isinstance(first.chunk, ChunkRows) and names.kind_of(first.chunk.dim) != "dim":
        along = misfit(f"its steps have chunks along {first.chunk.dim}, and the spec has no such dim",
                       line_span(file, first.line))  # fmt: skip
        report.add(imports.explain_error(file, along, item.path.span))
        return None
    routing = Routing(
        item.name.text, item.contract.text, tuple(mesh.axes[i].name for i in axes),
        source.line_of(item.span.start), _only(route, item, source),
        why_not=f"it comes from {item.path.value}, for {route.world} ranks",
        fetches=any(s.action == "fetch" for steps in route.steps for s in steps),
        ways=_ways(route, file),
        chunk=first.chunk if first else None, watch=report.watch,
    )  # fmt: skip
    breaches = routing.breaches(prod(sizes))
    for breach in breaches:
        report.add(imports.explain_breach(file, breach, source, item.path.span))
    imported.append(file.text)
    return None if breaches else routing


def _ways(route: Route, file: Source) -> tuple[Way, ...]:
    """Each way of its steps once, with the line of the first."""
    found: dict[tuple[bool, str | None, bool], Way] = {}
    for s in (s for steps in route.steps for s in steps):
        fetch = s.action == "fetch"
        found.setdefault((s.adding, s.via, fetch), Way(s.adding, s.via, None, f"{file.path}:{s.line}", fetch))
    return tuple(found.values())


def _only(route: Route, item: nodes.UsePlan, source: Source):
    """The route for its own world size, and why there is none for others."""

    def make(world: World) -> Route | Breach:
        if ranks_of(world) == route.world:
            return route
        sizes = f"for {route.world} ranks, not for {world_text(world)}"
        why = f"plan {route.name} comes from {item.path.value}, which is {sizes}"
        line = source.line_of(item.span.start)
        return Breach(imports.other_ranks.code, why, why, line, "from this file", span=item.path.span)

    return make


def _read(item: nodes.UsePlan, source: Source, report: Report) -> Source | None:
    """The text of the file, with its path as the spec and the command line give it."""
    path = os.path.join(os.path.dirname(source.path), item.path.value).replace(os.sep, "/")
    why = ""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            why = "it is no file"
        else:
            with open(path, "rb") as stream:
                data = stream.read(LARGEST_FILE + 1)
            if len(data) > LARGEST_FILE:
                why = f"it is larger than {LARGEST_FILE >> 20} MiB"
            else:
                return Source(path, data.removeprefix(_MARK).decode("utf-8"))
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8 text: byte {error.start}"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or str(error)
    report.add(imports.unreadable(path, why, item.path.span))
    return None
