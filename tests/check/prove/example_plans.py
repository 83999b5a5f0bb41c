"""For each rule of check/plans.py the plan that its docstring sketches under `Fails:` and the one under `Mended:`."""

from __future__ import annotations

from dataclasses import replace

from proof_plans import COLS, Build, add, copy, need, put, rows

from chunkdsl.plan.plan import Buffer, Lane, Plan

LANES = (Lane("main", True), Lane("tiles", False, "kernel"))


def build(calls: int = 1, slots: int = 1, world: int = 2) -> Build:
    buffers = [
        Buffer("x", "input", "bf16", 8, COLS), Buffer("w", "input", "bf16", 8, COLS),
        Buffer("part", "symmetric", "bf16", 8, COLS, slots), Buffer("sum", "local", "bf16", 8, COLS),
        Buffer("y", "output", "bf16", 8, COLS),
    ]  # fmt: skip
    return Build("example", world, calls, buffers, LANES)


def malformed(good: bool) -> Plan:
    b = build()
    b.task("tile", 0, "tiles", 0, "tile", [put(rows("part", 0, 0, 4, 4 if good else 8), "y", 4)])
    return b.plan()


def unordered(good: bool) -> Plan:
    b = build()
    chunk = b.signal("chunk", 1, 0, 0, 0)
    for i in range(2):
        effects = [put(rows("part", 1, 0, 4 * i, 4), "y", 4 * i)]
        b.task(f"tile {i}", 0, "tiles", 0, "tile", effects, signals=[chunk] if good or i else [], line=2)
    b.task("reduce", 1, "tiles", 0, "reduce", [need(rows("part", 1, 0, 0, 8), "y", 0)], [chunk], line=3)
    return b.plan()


def cyclic(good: bool) -> Plan:
    b = build()
    p, q = b.signal("p", 1, 0, 0, 0), b.signal("q", 0, 0, 1, 0)
    b.task("a", 0, "tiles", 0, "tile", waits=[] if good else [q], signals=[p])
    b.task("b", 1, "tiles", 0, "tile", waits=[p], signals=[q], line=2)
    return b.plan()


def few_programs(good: bool) -> Plan:
    b = build()
    part = b.signal("part", 0, 0, 0, 0)
    tasks = [("reduce", [part], []), ("tile", [], [part])]
    for name, waits, gives in reversed(tasks) if good else tasks:
        b.task(name, 0, "tiles", 0, name, waits=waits, signals=gives)
    return b.plan()


def unwritten(good: bool) -> Plan:
    b = build()
    b.task("tile", 0, "main", 0, "tile", [put(rows("part", 0, 0, 0, 8 if good else 4), "y", 0)])
    b.task("end", 0, "main", 0, "end", [need(rows("part", 0, 0, 0, 8), "y", 0)])
    return b.plan()


def _sum(added: list[int]) -> Plan:
    b = build()
    here = [b.signal("here", 0, q, q, 0) for q in range(2)]
    for q in range(2):
        b.task("tile", q, "tiles", 0, "tile", [put(rows("part", q, 0, 0, 8), "y", 0, 1 << q)], signals=[here[q]])
    effects = [put(rows("sum", 0, 0, 0, 8), "y", 0, 0), *[add(rows("sum", 0, 0, 0, 8), rows("part", q, 0, 0, 8))
               for q in added]]  # fmt: skip
    b.task("reduce", 0, "main", 0, "reduce", effects, here, line=3)
    b.task("end", 0, "main", 0, "end", [need(rows("sum", 0, 0, 0, 8), "y", 0, 3)], line=4)
    return b.plan()


def twice_counted(good: bool) -> Plan:
    return _sum([0, 1] if good else [0, 1, 1])


def missing(good: bool) -> Plan:
    return _sum([0, 1] if good else [0])


def _copied(first: int, what: str) -> Plan:
    b = build()
    arrived = b.signal("arrived", 1, 0, 0, 0)
    b.task("start", 0, "main", 0, "start", [put(rows(n, 0, 0, 0, 8), n, 0) for n in "xw"])
    b.task("copy", 0, "main", 0, "move", [copy(rows("part", 1, 0, 1, 4), rows(what, 0, 0, first, 4))],
           signals=[arrived], line=2)  # fmt: skip
    b.task("tile", 1, "tiles", 0, "tile", [need(rows("part", 1, 0, 1, 4), "x", 1)], [arrived], line=3)
    return b.plan()


def misplaced(good: bool) -> Plan:
    return _copied(1 if good else 0, "x")


def other_content(good: bool) -> Plan:
    return _copied(1, "x" if good else "w")


def output_twice(good: bool) -> Plan:
    b = build()
    for i, (first, count) in enumerate(((0, 4 if good else 5), (4, 4))):
        b.task(f"tile {i}", 0, "main", 0, "tile", [put(rows("y", 0, 0, first, count), "y", first)], line=i + 1)
    return b.plan()


def reused(good: bool) -> Plan:
    b = build(calls=2)
    over = b.signal("over", 0, 0, 1, 0)
    for e in range(2):
        arrived = b.signal("arrived", 1, 0, 0, e)
        b.task("start", 0, "main", e, "start", [put(rows("part", 0, 0, 0, 8), "x", 0)],
               [over] if good and e else [], [arrived])  # fmt: skip
        b.task("tile", 1, "tiles", e, "tile", [need(rows("part", 0, 0, 0, 8), "x", 0)], [arrived],
               [over] if not e else [], line=2)  # fmt: skip
    return b.plan()


def stale(good: bool) -> Plan:
    b = build(calls=2)
    for e in range(2):
        effects = [put(rows("part", 0, 0, 0, 8), "x", 0)] if good or not e else []
        b.task("start", 0, "main", e, "start", effects)
        b.task("end", 0, "main", e, "end", [need(rows("part", 0, 0, 0, 8), "x", 0)], line=2)
    return b.plan()


def overtaken(good: bool) -> Plan:
    b = build()
    for i in range(2):
        b.task(f"tile {i}", 0, "tiles", 0, "tile", signals=[b.signal("word", 1, i, 0, 0)])
    plan = b.plan()
    return plan if good else replace(plan, signals=(plan.signals[0], plan.signals[0]))


def unsignalled(good: bool) -> Plan:
    b = build()
    arrived = b.signal("arrived", 1, 0, 0, 0)
    if good:
        b.task("copy", 0, "main", 0, "move", signals=[arrived])
    b.task("tile", 1, "tiles", 0, "tile", waits=[arrived])
    return b.plan()


def two_ranks(good: bool) -> Plan:
    b = build()
    for r in range(2):
        b.task("tile", r, "tiles", 0, "tile", signals=[b.signal("arrived", 0, r if good else 0, r if good else 0, 0)])
    return b.plan()


EXAMPLES = {
    "CD301": malformed,
    "CD302": unordered,
    "CD303": cyclic,
    "CD304": few_programs,
    "CD305": unwritten,
    "CD306": twice_counted,
    "CD307": missing,
    "CD308": misplaced,
    "CD309": other_content,
    "CD310": output_twice,
    "CD401": reused,
    "CD402": stale,
    "CD403": overtaken,
    "CD404": unsignalled,
    "CD405": two_ranks,
}
