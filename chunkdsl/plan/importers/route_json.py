"""Our own form of a route: JSON, versioned, one step a line, the same bytes for the same route.

    {"format": 1, "kind": "route", "name": "ring", "contract": "all_gather", "axes": [4],
     "steps": [[{"do": "send", "source": [0], "peer": 1, "when": [0], "line": 12, "named": {"i": 0}}, ...], ...]}

`steps` has a list for each rank. Left out are keys with their defaults: `target` (that of the source), `adding`
(false), `lane` (0), `line` (0), `named` ({}), `via` and `chunk` (what the op says). A piece is [shard] or [shard, part,
parts]; a chunk {"bytes": n}, {"rows": n, "along": "M"} or {"per_shard": n}. The schema is grammars/plan.schema.json.
Read here: names, types and ranges; whether a route keeps its contract is found by following it (`plan/trace`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod

from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows
from chunkdsl.plan.importers.fault import malformed, unsupported
from chunkdsl.plan.importers.json_text import Json
from chunkdsl.plan.importers.machine import LARGEST_LANE
from chunkdsl.plan.steps import Piece, Route, Step

FORMAT = 1
CONTRACTS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
ROUTE = ("format", "kind", "name", "contract", "axes", "steps")
STEP = ("do", "source", "target", "peer", "adding", "when", "lane", "line", "named", "via", "chunk")
VIA = ("copy_engine", "tma", "ldst")
CHUNKS = (("bytes",), ("rows", "along"), ("per_shard",))
LARGEST = 2**31 - 1
LARGEST_WORLD = 1024
MOST_STEPS = 65536
LONGEST_WHEN = 32
MOST_PARTS = 4096


def dump_route(route: Route) -> str:
    """The route as JSON. `read_route` of that gives an equal one."""
    head = {"format": FORMAT, "kind": "route", "name": route.name, "contract": route.contract, "axes": [*route.axes]}
    lines = [f"{_json(k)}: {_json(v)}" for k, v in head.items()]
    ranks = [",\n".join(_json(_step(s)) for s in steps) for steps in route.steps]
    lines.append('"steps": [\n' + ",\n".join(f"[\n{r}\n]" if r else "[]" for r in ranks) + "\n]")
    return "{" + ",\n".join(lines) + "}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _step(s: Step) -> dict[str, object]:
    found: dict[str, object] = {"do": s.action, "source": _piece(s.source)}
    if s.target != s.source:
        found["target"] = _piece(s.target)
    found["peer"] = s.peer
    if s.adding:
        found["adding"] = True
    found["when"] = [*s.when]
    for key, value in (("lane", s.lane), ("line", s.line), ("named", dict(s.named)), ("via", s.via)):
        if value:
            found[key] = value
    match s.chunk:
        case ChunkBytes(count):
            found["chunk"] = {"bytes": count}
        case ChunkRows(count, dim):
            found["chunk"] = {"rows": count, "along": dim}
        case ChunkCount(count):
            found["chunk"] = {"per_shard": count}
    return found


def _piece(p: Piece) -> list[int]:
    return [p.shard] if p.parts == 1 else [p.shard, p.part, p.parts]


def read_route(plan: Json, line_of: Callable[[int], int] | None = None) -> Route:
    """The route that a file holds. PlanFileError for what is not of the form. The lines of its steps are those that it
    names, of what it was made from; with `line_of(offset)` they are the file's own, for findings in it."""
    plan.fields(ROUTE)
    _version(plan)
    if plan.member("kind").text() != "route":
        raise malformed(f"wanted kind \"route\", found {plan.member('kind').data!r}", plan.member("kind").span)
    contract = plan.member("contract")
    if contract.text() not in CONTRACTS:
        raise malformed(f"wanted one of {', '.join(CONTRACTS)}, found {contract.data!r}", contract.span)
    axes = tuple(a.integer(1, LARGEST_WORLD) for a in plan.member("axes").items(8))
    ranks = plan.member("steps").items(LARGEST_WORLD)
    if not axes or prod(axes) != len(ranks):
        raise malformed(f"axes of {prod(axes) if axes else 'no'} ranks, and steps of {len(ranks)}",
                        plan.member("axes").span)
    if sum(len(r.items(MOST_STEPS)) for r in ranks) > MOST_STEPS:
        raise unsupported(f"more than {MOST_STEPS} steps", plan.member("steps").span)
    places = len(ranks) * (2 if contract.text() == "all_to_all" else 1)  # those of the relay too
    steps = tuple(tuple(_read_step(s, len(ranks), places, line_of) for s in r.items(MOST_STEPS)) for r in ranks)
    return Route(plan.member("name").text(), contract.text(), axes, steps)


def _version(plan: Json) -> None:
    found = plan.member("format")
    if found.integer(0, LARGEST) != FORMAT:
        raise unsupported(f"format {found.data}; this version reads format {FORMAT}", found.span)


def _read_step(step: Json, world: int, places: int, line_of: Callable[[int], int] | None) -> Step:
    members = step.fields(STEP)
    do = step.member("do")
    if do.text() not in ("send", "fetch"):
        raise malformed(f"wanted send or fetch, found {do.data!r}", do.span)
    source = _read_piece(step.member("source"), places)
    when = tuple(w.integer(-LARGEST, LARGEST) for w in step.member("when").items(LONGEST_WHEN))
    named = members["named"].fields(tuple(members["named"].keys)) if "named" in members else {}
    via = members["via"] if "via" in members else None
    if via is not None and via.text() not in VIA:
        raise malformed(f"wanted one of {', '.join(VIA)}, found {via.data!r}", via.span)
    line = members["line"].integer(0, LARGEST) if "line" in members else 0
    return Step(
        do.text(), source, _read_piece(members["target"], places) if "target" in members else source,
        step.member("peer").integer(0, world - 1),
        adding=members["adding"].truth() if "adding" in members else False,
        when=when,
        lane=members["lane"].integer(0, LARGEST_LANE) if "lane" in members else 0,
        line=line_of(step.span.start) if line_of else line,
        named=tuple((k, v.integer(-LARGEST, LARGEST)) for k, v in named.items()),
        via=via.text() if via else None,
        chunk=_read_chunk(members["chunk"]) if "chunk" in members else None,
    )  # fmt: skip


def _read_piece(value: Json, places: int) -> Piece:
    items = value.items(3)
    if len(items) not in (1, 3):
        raise malformed(f"wanted [shard] or [shard, part, parts], found {len(items)} items", value.span)
    shard = items[0].integer(0, places - 1)
    if len(items) == 1:
        return Piece(shard)
    parts = items[2].integer(1, MOST_PARTS)
    return Piece(shard, items[1].integer(0, parts - 1), parts)


def _read_chunk(value: Json):
    keys = tuple(value.fields(tuple(k for form in CHUNKS for k in form)))
    if set(keys) not in [set(form) for form in CHUNKS]:
        raise malformed('wanted {"bytes": n}, {"rows": n, "along": "M"} or {"per_shard": n}', value.span)
    if "bytes" in keys:
        return ChunkBytes(value.member("bytes").integer(1, 2**62))
    if "rows" in keys:
        return ChunkRows(value.member("rows").integer(1, LARGEST), value.member("along").text())
    return ChunkCount(value.member("per_shard").integer(1, LARGEST))
