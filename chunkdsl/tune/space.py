"""What may be tried for an op: for each of its collectives the values that the cost model has not ruled out, and the
schedule that a setting gives. Measures nothing, and decides nothing but what is too slow to be looked at.

Tried are the values that `auto` weighs (cost/choose_transport.py, choose_exchange.py), as far as the spec leaves them
open. Left out are those predicted to take longer than the best by more than predictions err (`tune` of
cost/data/choices.toml), and those that give a schedule which others gave before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from chunkdsl.cost.choose import trials_of
from chunkdsl.cost.constants import margin
from chunkdsl.cost.transports import MIB, text_of
from chunkdsl.cost.trials import LARGEST_TRIAL, Trials
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.meshes import World, sizes
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, Place
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.record import record
from chunkdsl.tune.evidence import Setting

KEYS = ("route", "via", "place", "chunk", "buffers", "algorithm", "validity")
Part = tuple[tuple[str, str], ...]  # of a setting, what it says of one collective


@record(eq=False)
class Space:
    """One op. `base`: the setting that it has without tuning. `options`: for each collective other parts to try, those
    that are predicted fastest first."""

    op: Op
    trials: Trials
    base: Setting
    options: tuple[tuple[str, tuple[Part, ...]], ...]

    @property
    def count(self) -> int:
        """Settings that a search measures."""
        return 1 + sum(len(parts) for _, parts in self.options)


def spaces(program: Program, world: World) -> tuple[Schedule, list[Space]]:
    """The schedule by the rules, and the spaces of all ops, on a mesh of these sizes in place of the declared ones."""
    axes = [replace(a, size=n) for a, n in zip(program.mesh.axes, sizes(world), strict=True)]
    program = replace(program, mesh=replace(program.mesh, axes=tuple(axes)))
    made = schedule_program(program, Report(program.source))
    return made, [_space(op, trials) for op, trials in trials_of(program, made)]


def _space(op: Op, trials: Trials) -> Space:
    if trials.tasks(trials.plain, trials.dims) > LARGEST_TRIAL:
        return Space(op, trials, (), ())
    found = {where: settled.value for where, settled in trials.settle().items() if settled.value is not None}
    named = labels(trials.collectives)
    base = _setting((label, key, found[v, key]) for label, v in named.items() for key in KEYS if (v, key) in found)
    space, options = Space(op, trials, base, ()), []
    seen = {unchosen(schedule_of(space, base))}
    for label, v in named.items():
        tried, parts = trials.tried(v), []
        for us, values in tried:
            part = tuple((key, text_of(values[key])) for key in KEYS if key in values)
            if us > tried[0][0] * (1 + margin("tune")):
                break
            made = schedule_of(space, replaced(base, label, part))
            if made is not None and unchosen(made) not in seen:
                seen.add(unchosen(made))
                parts.append(part)
        options.append((label, tuple(parts)))
    return Space(op, trials, base, tuple(options))


def labels(collectives: Iterable[Value]) -> dict[str, Value]:
    """A name for each collective of an op: `all_gather`, `all_gather 2`, ..."""
    found: dict[str, Value] = {}
    for v in collectives:
        count = sum(v.kind == other.kind for other in found.values())
        found[f"{v.kind} {count + 1}" if count else v.kind] = v
    return found


def replaced(setting: Setting, label: str, part: Part) -> Setting:
    """The setting with another part for one collective."""
    kept = [s for s in setting if s[0] != label]
    return tuple(sorted([*kept, *((label, key, text) for key, text in part)]))


def part_of(setting: Setting, label: str) -> Part:
    return tuple((key, text) for of, key, text in setting if of == label)


def settlement_of(space: Space, setting: Setting, why: str = "") -> Settlement | None:
    """What `schedule_program` takes; None where the setting names what the op or the language does not have."""
    named, found = labels(space.trials.collectives), Settlement()
    for label, key, text in setting:
        value = value_of(key, text)
        if label not in named or value is None:
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
    if key == "buffers":
        return int(text) if text in ("1", "2", "3") else None
    words = key in ("route", "via", "algorithm", "validity") and re.fullmatch(r"\w+(\(\w+, \w+\))?", text)
    return text if words else None


def _setting(found: Iterable[tuple[str, str, object]]) -> Setting:
    return tuple(sorted((label, key, text_of(value)) for label, key, value in found))
