"""Random routes on simulated ranks: a small module is emitted once, and runs with the tables of one route or another.

What it does is held against the plan of the route, `exact` and float64 by the checks of `verify`. Tables can be broken
after the proof; the module's text can be edited before it is loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from chunkdsl.ir.graph import Op
from chunkdsl.pipeline import check_source
from chunkdsl.plan.halves import halves_of, split
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.steps import Route
from chunkdsl.plan.tables import RouteTable, route_tables
from chunkdsl.plan.trace import trace
from chunkdsl.plan.trace_breaches import Breach
from chunkdsl.render.module import render_module
from chunkdsl.render.route_sums import places_by_ranks
from chunkdsl.source import Source
from chunkdsl.verify.simulate import Row, run_op
from chunkdsl.verify.verify import load

HEAD = "mesh tp[{world}]\ndim M = 1..64\n"
POLICY = "with {{ route = p, tile = 16x16x16, chunk = 2 per shard, place = own_sms(1) }} }}\n"
GATHER = """    for i in range(1, tp) {{ for h in range(2) {{
        fetch t[(rank + i) mod tp] part h of 2 from (rank + i) mod tp
    }} }}
"""
ADD = """    for i in range(1, tp) {{ for h in range(2) {{
        send t[(rank + i) mod tp] part h of 2 to (rank + i) mod tp adding
    }} }}
"""
# Steps that no world size has: the module can carry what random routes do, fetch addends and replace sums.
ANY = "    if tp > 99 {{ fetch t[0] from 0 adding  send t[0] to 0 }}\n"
ROOT = """    for r in range(1, tp) {{ for s in range(tp) {{ if rank == r {{ send t[s] to 0 adding }} }} }}
    for r in range(1, tp) {{ for s in range(tp) {{ for h in range(2) {{
        if rank == 0 {{ send t[s] part h of 2 to r }}
    }} }} }}
"""
WHOLE = "all_reduce as it is"
ADDENDS = "tensor x : bf16[M, {wide} @ tp]\ntensor w : bf16[{wide} @ tp, 16]\n"
PAIRS = """plan p(t) : all_to_all over tp {{
    for i in range(tp) {{ for h in range(2) {{ if i < rank {{
        send t[i] part h of 2 to i into t[rank] part h of 2
        fetch t[rank] part h of 2 from i into t[i] part h of 2
    }} }} }}
}}
"""
PRODUCT = "all_to_all of a product"
SPECS = {
    "all_gather": "tensor x : bf16[M @ tp, 16]\ntensor w : bf16[16, {wide} @ tp]\nplan p(t) : all_gather over tp {{\n"
    + GATHER + "}}\nop f(x, w) -> y {{ y = all_gather(x) @ w " + POLICY,
    "reduce_scatter": ADDENDS + "plan p(t) : reduce_scatter over tp {{\n" + ADD + ANY
    + "}}\nop f(x, w) -> y {{ y = reduce_scatter(x @ w, M) " + POLICY,
    "all_reduce": ADDENDS + "plan p(t) : all_reduce over tp {{\n" + ADD + GATHER + ANY
    + "}}\nop f(x, w) -> y {{ y = all_reduce(x @ w) " + POLICY,
    WHOLE: ADDENDS + "plan p(t) : all_reduce over tp {{\n" + ROOT + ANY
    + "}}\nop f(x, w) -> y {{ y = all_reduce(x @ w) " + POLICY,
    "all_to_all": "dim D = {wide}\ntensor x : bf16[M, D @ tp]\ntensor w : bf16[D, 16]\n" + PAIRS
    + "op f(x, w) -> y {{ y = all_to_all(x, D -> M) @ w " + POLICY,
    PRODUCT: "dim D = {wide}\ntensor x : bf16[M @ tp, 16]\ntensor w : bf16[16, D]\n" + PAIRS
    + "op f(x, w) -> y {{ y = all_to_all(x @ w, M -> D) " + POLICY,
}  # fmt: skip


def contract_of(kind: str) -> str:
    """Of a spec above."""
    return {PRODUCT: "all_to_all", WHOLE: "all_reduce"}.get(kind, kind)


@cache
def scheduled(kind: str, world: int) -> tuple[Schedule, Op]:
    text = (HEAD + SPECS[kind]).format(world=world, wide=16 * world)
    checked = check_source(Source("r.chunk", text))
    assert checked.report.diagnostics == (), checked.report.diagnostics
    return checked.schedule, checked.program.ops[0]


def along(route: Route, kind: str = "") -> tuple[Schedule, OpSchedule]:
    """A small spec, that of the route's contract or `kind`, its op carried along the route."""
    other = Breach("CD026", "", "", 1)
    routing = Routing("r", route.contract, ("tp",), 1, lambda world: route if world == route.world else other)
    made, _ = scheduled(spec_for(route, kind), route.world)
    halves = halves_of(routing) if spec_for(route, kind) == "all_reduce" else (routing, routing)
    of = {"scatter": halves[0], "gather": halves[1], "deal": routing}
    launches = []
    for n in made.ops[0].launches:
        moves = tuple(replace(m, routing=of[m.kind]) for m in n.moves)
        sums = n.sums and replace(n.sums, routing=halves[0])
        visits = n.visits and of[n.moves[0].kind if n.moves else "deal"]
        launches.append(replace(n, moves=moves, sums=sums, visits=visits))
    of_sums = {key: tuple(replace(x, routing=x.routing and halves[0]) for x in getattr(made.ops[0], key))
               for key in ("buffers", "flags", "counters")}  # fmt: skip
    return made, replace(made.ops[0], launches=tuple(launches), **of_sums)


def spec_for(route: Route, kind: str = "") -> str:
    """The spec that carries a route: `kind`, or that of its contract; of an all-reduce whether it splits says which."""
    if route.contract != "all_reduce":
        return kind or route.contract
    found = trace(route)
    return WHOLE if not found.breaches and isinstance(split(found), Breach) else route.contract


MODULES = tempfile.TemporaryDirectory(prefix="chunkdsl-routes-")  # goes with the process


@cache
def emitted(kind: str, world: int, edit: Callable[[str], str] | None = None):
    """The module of a small spec; `edit` changes its text."""
    made, _ = scheduled(kind, world)
    text = render_module(made, (world,))
    folder = Path(tempfile.mkdtemp(dir=MODULES.name))
    return load(edit(text) if edit else text, folder, f"{kind.replace(' ', '_')}_{world}")


Tables = dict[str, list[list[tuple[int, ...]]]]  # rows of each rank, by name


def tables_of(op: OpSchedule, world: int) -> tuple[Tables, dict[str, RouteTable]]:
    found = {t.name: t for t in route_tables(op)}
    return {name: [list(rows) for rows in t.rows(world)] for name, t in found.items()}, found


def simulate(
    route: Route, sizes, seed: int = 0, *, kind: str = "", broken: Tables | None = None,
    edit: Callable[[str], str] | None = None,
) -> list[Row]:  # fmt: skip
    """The rows of `verify` for calls of `sizes` rows along a route. `broken`: instead of the tables that it has."""
    made, op = along(route, kind)
    tables, found = tables_of(op, route.world)
    module = emitted(spec_for(route, kind), route.world, edit)
    held = {
        name: {route.world: (found[name].routing.parts(route.world), tuple(map(tuple, rows)))}
        for name, rows in (broken or tables).items()
    }
    of_class = next(v for v in vars(module).values() if getattr(v, "NAME", None) == "f")
    of_class.TABLES = held
    of_class.PLACES = {name: dict(counts) for name, counts in places_by_ranks(op, [route.world])}
    typed = scheduled(spec_for(route, kind), route.world)[1]
    return run_op(module, "R", made, op, typed, route.world, seed, [{"M": m} for m in sizes], pointers=True)


def wrong(rows: list[Row]) -> list[str]:
    return [f"{r.check}: {r.detail}" for r in rows if not r.passed]


# column: what a fault changes there; "count" needs an arrival to forget
COLUMNS = {
    "hops": {"peer": 0, "shard": 1, "part": 2, "way": 3},
    "adding": {"peer": 0, "shard": 1, "part": 2, "place": 3, "base": 4, "first": 5, "early": 6, "way": 8},
    "final": {"final": 2, "kept": 0},
    "blocks": {"peer": 0, "here": 1, "there": 2, "giver": 3, "taker": 4, "part": 5, "way": 6},
}
FAULTS = ("drop", "again", "peer", "shard", "part", "way", "place", "first", "early", "final", "base", "kept")
OF_BLOCKS = ("here", "there", "giver", "taker")


def spoil(draw, route: Route, fault: str, kind: str = "") -> Tables | None:
    """The tables of a route with one fault: a row dropped or carried twice, or one number of a row another. None where
    the route has no row for it."""
    _, op = along(route, kind)
    tables, found = tables_of(op, route.world)
    places = [(name, rank, i) for name, rows in tables.items() for rank in range(route.world)
              for i in range(len(rows[rank])) if fits(found[name], fault, rows[rank][i], route.world)]  # fmt: skip
    if not places:
        return None
    name, rank, i = places[draw(0, len(places) - 1)]
    mine, table = tables[name][rank], found[name]
    if fault == "drop":
        del mine[i]
    elif fault == "again":
        mine.insert(i, mine[i])
    else:
        column, row = COLUMNS[table.kind][fault], list(mine[i])
        if fault in ("early", "final"):
            row[column] -= 1
        elif fault in ("base", "kept"):  # an arrival instead of the own addend, or the other way round
            row[column] = 0 if row[column] < 0 else -1
        elif fault == "here":  # the input instead of the relay, or the other way round
            row[column] = (row[column] + route.world) % (2 * route.world)
        else:
            places = max(2, table.routing.places(route.world)) if table.kind == "adding" else 0
            limits = {"part": table.routing.parts(route.world), "way": 2, "there": 2 * route.world}
            limits |= {"place": places, "first": places}
            limit = limits.get(fault, route.world)
            row[column] = (row[column] + draw(1, limit - 1)) % limit
        mine[i] = tuple(row)
    return tables


def fits(table: RouteTable, fault: str, row: tuple[int, ...], world: int) -> bool:
    if fault in ("drop", "again"):
        return table.kind in ("hops", "adding", "blocks")
    if fault not in COLUMNS.get(table.kind, ()):
        return False
    if fault in ("giver", "taker"):  # elsewhere they say no more than how much there is, which may be as much
        return row[2 if fault == "giver" else 1] < world
    if fault == "part":
        return table.routing.parts(world) > 1
    return fault not in ("first", "early", "final") or row[6 if table.kind == "adding" else 2] > 0


def read_early(text: str) -> str:
    """The module without the waits of a transfer for what it passes on."""
    gather = text.replace("    if content != holder:\n", "    if content == W:\n")
    loop = "        for k in range({}):\n            word = (here"
    scatter = gather.replace(loop.format("count"), loop.format("0"))
    deal = scatter.replace("here >= W:  # it lies", "here >= 2 * W:  # it lies")
    made = deal.replace("(here >= W):  # it lies", "(here >= 2 * W):  # it lies")
    assert made != text
    return made


def unrounded(text: str) -> str:
    """The module without the rounding of what a rank has sent on and goes on with."""
    found = text.replace(" != 0:  # it was sent on like this", " > 1:  # it was sent on like this")
    assert found != text
    return found
