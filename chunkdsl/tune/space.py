"""What may be tried for an op: for each of its collectives and products the values that the cost model has not ruled
out, and the schedule that a setting gives. Measures nothing, and decides nothing but what is too slow to be looked at.

Tried are the values that `auto` weighs (cost/choose_transport.py, choose_exchange.py), and those of `MORE`, which only
a measurement can judge; all as far as the spec leaves them open. Left out are those predicted to take longer than the
best by more than predictions err (`tune` of cost/data/choices.toml), and those that give a schedule which others gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from chunkdsl.cost.choose import trials_of
from chunkdsl.cost.constants import margin
from chunkdsl.cost.transports import MIB, text_of
from chunkdsl.cost.trials import LARGEST_TRIAL, Trials
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.meshes import World, sizes
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, Place
from chunkdsl.ir.types import DimRange
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.record import record
from chunkdsl.tune.evidence import Setting, Sizes

COLLECTIVE = ("route", "via", "side", "place", "order", "chunk", "buffers", "algorithm", "validity", "add")
PRODUCT = ("tile", "stages", "warps", "compute")
Part = tuple[tuple[str, str], ...]  # of a setting, what it says of one collective or product

GATHERS: tuple[Part, ...] = (
    (("side", "push"),),
    (("side", "pull"),),
    (("place", "own_sms(16)"), ("via", "tma")),
    (("place", "co_located"), ("via", "ldst")),
)
REDUCTIONS: tuple[Part, ...] = (
    (("via", "tma"),),
    (("place", "own_sms(16)"), ("via", "tma")),
    (("side", "pull"),),
    (("algorithm", "one_shot"),),
    (("algorithm", "two_shot"),),
    (("order", "interleaved"),),
    (("add", "in_tiles"),),
    (("add", "behind"),),
)
PRODUCTS: tuple[Part, ...] = (
    (("compute", "library"),),
    (("tile", "128x128x64"),),
    (("tile", "128x128x64"), ("warps", "4")),
    (("tile", "256x128x64"),),
    (("tile", "64x256x64"),),
    (("stages", "3"),),
)
MORE = {"all_gather": GATHERS, "reduce_scatter": REDUCTIONS, "all_reduce": REDUCTIONS, "matmul": PRODUCTS}


@record(eq=False)
class Space:
    """One op. `base`: the setting that it has without tuning. `options`: for each collective and product other parts to
    try, those of a collective that are predicted fastest first; `calls`: sizes at which settings are compared."""

    op: Op
    trials: Trials
    base: Setting
    options: tuple[tuple[str, tuple[Part, ...]], ...]
    calls: tuple[Sizes, ...] = ()
    legal: dict[Setting, bool] = field(default_factory=dict)  # as far as it was asked

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def ranges(self) -> Mapping[str, DimRange]:
        return self.trials.ranges

    @property
    def steps(self) -> int:
        return len(self.options)

    @property
    def count(self) -> int:
        """Settings that a search measures."""
        return 1 + sum(len(parts) for _, parts in self.options)

    def step(self, i: int, best: Setting) -> list[Setting | None]:
        """The settings of a step, beside the best before it; None for one that is not legal there."""
        label, parts = self.options[i]
        return [s if self._is_legal(s) else None for s in (replaced(best, label, part) for part in parts)]

    def _is_legal(self, setting: Setting) -> bool:
        if setting not in self.legal:
            self.legal[setting] = schedule_of(self, setting) is not None
        return self.legal[setting]


def spaces(program: Program, world: World, calls: Mapping[str, Sequence[Sizes]]) -> tuple[Schedule, list[Space]]:
    """The schedule by the rules, and the spaces of all ops, on a mesh of these sizes in place of the declared ones.
    `calls`: by op, where settings are compared."""
    axes = [replace(a, size=n) for a, n in zip(program.mesh.axes, sizes(world), strict=True)]
    program = replace(program, mesh=replace(program.mesh, axes=tuple(axes)))
    made = schedule_program(program, Report(program.source))
    every = trials_of(program, made)
    return made, [replace(_space(op, t), calls=calls_that_differ(op, calls[op.name])) for op, t in every]


def calls_that_differ(op: Op, calls: Sequence[Sizes]) -> tuple[Sizes, ...]:
    """Of sizes that differ only in dims which the op does not have the last ones."""
    has = {name for v in values_of(op) for size in v.type.shape for name in re.findall(r"\w+", str(size))}
    return tuple(sorted({tuple(s for s in c if s[0] in has): c for c in calls}.values()))


def _space(op: Op, trials: Trials) -> Space:
    named = labels(trials)
    if trials.tasks(trials.plain, trials.dims) > LARGEST_TRIAL:
        return Space(op, trials, (), ())
    found = {where: settled.value for where, settled in trials.settle().items() if settled.value is not None}
    base = _setting((label, k, found[v, k]) for label, v in named.items() for k in COLLECTIVE if (v, k) in found)
    space, options = Space(op, trials, base, ()), []
    seen = {unchosen(schedule_of(space, base))}
    for label, v in named.items():
        parts = []
        for part in (*_weighed(trials, v), *_more(trials, v)):
            made = schedule_of(space, replaced(base, label, part))
            if made is not None and unchosen(made) not in seen:
                seen.add(unchosen(made))
                parts.append(part)
        options.append((label, tuple(parts)))
    return Space(op, trials, base, tuple(options))


def _weighed(trials: Trials, v: Value) -> Iterator[Part]:
    """What `auto` weighs of a collective and does not find far behind, the fastest first."""
    tried = trials.tried(v) if v in trials.collectives else []
    for us, values in tried:
        if us > tried[0][0] * (1 + margin("tune")):
            break
        if trials.world > 2 or values.get("route") != "direct":  # of two ranks each has one peer, whatever the order
            yield tuple((key, text_of(values[key])) for key in COLLECTIVE if key in values)


def _more(trials: Trials, v: Value) -> Iterator[Part]:
    """Further values, of keys that the spec leaves open. Those of products are measured whatever is predicted: of tiles
    other than the usual one little is known."""
    usual = trials.time(v, {}, v.policy) if v in trials.collectives else None
    for part in MORE.get(v.kind, ()):
        if any((v, key) not in trials.said for key, _ in part):
            continue
        values = {key: value_of(key, text) for key, text in part}
        us = trials.time(v, values, v.policy) if usual is not None else None
        if usual is None or (us is not None and us <= usual * (1 + margin("tune"))):
            yield part


def labels(trials: Trials) -> dict[str, Value]:
    """A name for each collective of an op, and for each product with a tile: `all_gather`, `product`, `product 2`."""
    products = [v for v in values_of(trials.op) if v.kind == "matmul" and any((v, k) in trials.said for k in PRODUCT)]
    found: dict[str, Value] = {}
    for v in (*trials.collectives, *products):
        count, kind = sum(v.kind == other.kind for other in found.values()), v.kind.replace("matmul", "product")
        found[f"{kind} {count + 1}" if count else kind] = v
    return found


def keys_of(v: Value) -> tuple[str, ...]:
    """Keys of its policy that tuning may settle."""
    return PRODUCT if v.kind == "matmul" else COLLECTIVE


def replaced(setting: Setting, label: str, part: Part) -> Setting:
    """The setting with another part for one collective or product. A product that the library computes, chunk by chunk,
    wants other chunks and transports: those of the rules."""
    by_library = ("compute", "library") in part
    kept = [s for s in setting if s[0] != label and (s[1] in PRODUCT or not by_library)]
    return tuple(sorted([*kept, *((label, key, text) for key, text in part)]))


def part_of(setting: Setting, label: str) -> Part:
    return tuple((key, text) for of, key, text in setting if of == label)


def settlement_of(space: Space, setting: Setting, why: str = "") -> Settlement | None:
    """What `schedule_program` takes; None where the setting names what the op or the language does not have."""
    named, found = labels(space.trials), Settlement()
    for label, key, text in setting:
        value = value_of(key, text)
        if label not in named or key not in keys_of(named[label]) or value is None:
            return None
        found[named[label], key] = Settled(value, text, why)
    return found


def schedule_of(space: Space, setting: Setting) -> OpSchedule | None:
    """The op with this setting; None if that is not legal."""
    settled = settlement_of(space, setting)
    return None if settled is None else space.trials.schedule(settled, {})


def unchosen(made: OpSchedule | None) -> OpSchedule | None:
    """A schedule without the reasons for it."""
    return made and replace(made, choices=())


def value_of(key: str, text: str) -> object | None:
    """The value that a policy would have there; None if there is none like it."""
    if key == "chunk" and (found := re.fullmatch(r"([1-9]\d{0,8}) (MiB|per shard)", text)):
        count = int(found[1])
        return ChunkBytes(count * MIB) if found[2] == "MiB" else ChunkCount(count)
    if key == "place":
        found = re.fullmatch(r"own_sms\(([1-9]\d{0,3})\)", text)
        return Place("own_sms", int(found[1])) if found else Place(text) if text == "co_located" else None
    if key == "tile":
        found = re.fullmatch(r"(\d{2,3})x(\d{2,3})x(\d{2,3})", text)
        tile = tuple(map(int, found.groups())) if found else ()
        return tile if tile and all(n >= 16 and n & (n - 1) == 0 for n in tile) else None
    if key in COUNTS:
        return int(text) if text in COUNTS[key] else None
    words = key in WORDS and re.fullmatch(r"\w+(\(\w+, \w+\))?", text)
    return text if words else None


COUNTS = {"buffers": ("1", "2", "3"), "stages": tuple("12345678"), "warps": ("1", "2", "4", "8", "16")}
WORDS = ("route", "via", "side", "order", "algorithm", "validity", "compute", "add")


def _setting(found: Iterable[tuple[str, str, object]]) -> Setting:
    return tuple(sorted((label, key, text_of(value)) for label, key, value in found))
