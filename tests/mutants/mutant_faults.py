"""A fault, and how it is planted: in the schedule, in a template, in a helper or the wrapper of the module's text.

Planting asserts that what it replaces was there, so that an edit of the templates cannot turn a mutant into a no-op.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from unittest import mock

from jinja2 import BaseLoader, TemplateNotFound

import chunkdsl.render.module as render
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.render.environment import environment


@dataclass(frozen=True)
class Edit:
    """Replace `old` by `new`, exactly `times` times: in the template `file`, or in the module's text ("").

    Within a line blanks match any blanks and line ends, so that an anchor outlives another wrapping."""

    old: str
    new: str
    file: str = ""
    times: int = 1

    def __call__(self, text: str) -> str:
        made, found = anchor(self.old).subn(lambda match: self.new, text)
        assert found == self.times, f"{found} times, not {self.times}, in {self.file or 'the module'}: {self.old}"
        assert self.old != self.new
        return made


def anchor(old: str) -> re.Pattern[str]:
    if "\n" in old or old != old.strip():
        return re.compile(re.escape(old))
    pattern = r"\s+".join(re.escape(word) for word in old.split())
    return re.compile(pattern.replace(r"\(", r"\(\s*").replace(r"\)", r",?\s*\)"))


@dataclass(frozen=True)
class Fault:
    """`by`: the catchers of which at least one must catch it. `planted`: schedule, template, helper or wrapper.
    `run`: keywords of the simulated run (see `Run`)."""

    name: str
    base: str
    breaks: str
    planted: str
    by: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    change: Callable[[OpSchedule], OpSchedule] | None = None
    run: Mapping[str, object] = field(default_factory=dict)

    @property
    def sized(self) -> Mapping[str, object]:
        """`run`, of one call where later ones have no part in the fault: wrong values, and logs unlike the plan."""
        alone = set(self.by) <= {"conformance", "exact", "float64"}
        return {"calls": (37,), **self.run} if alone else self.run


def plant_schedule(fault: Fault | None, schedule: Schedule) -> Schedule:
    """The schedule with its one op changed."""
    if fault is None or fault.change is None:
        return schedule
    (op,) = schedule.ops
    changed = fault.change(op)
    assert changed != op, f"{fault.name} changes nothing"
    return replace(schedule, ops=(changed,))


@lru_cache(maxsize=64)
def sound_text(schedule: Schedule, proven: tuple[int, ...]) -> str:
    return render.render_module(schedule, proven)


def render_text(fault: Fault | None, schedule: Schedule, proven: tuple[int, ...]) -> str:
    """The module's text with the fault in it."""
    text = sound_text(schedule, proven)
    if fault is None:
        return text
    in_templates = [e for e in fault.edits if e.file]
    if in_templates:
        original = environment()
        overlay = original.overlay(loader=EditedTemplates(original.loader, in_templates))
        with mock.patch.object(render, "environment", lambda: overlay):
            text = render.render_module(schedule, proven)
        assert text != sound_text(schedule, proven), f"{fault.name}: no template that this base uses is changed"
    for edit in fault.edits:
        if not edit.file:
            text = edit(text)
    return text


class EditedTemplates(BaseLoader):
    """The templates as shipped, but for the edits."""

    def __init__(self, shipped: BaseLoader, edits: list[Edit]) -> None:
        self.shipped, self.edits = shipped, edits
        known = set(shipped.list_templates())
        for edit in edits:
            if edit.file not in known:
                raise TemplateNotFound(edit.file)

    def get_source(self, env, template):
        text, name, fresh = self.shipped.get_source(env, template)
        for edit in self.edits:
            if edit.file == template:
                text = edit(text)
        return text, name, fresh


# ---- words of the tables of faults

SIM, LOG, EITHER = ("simulator",), ("conformance",), ("simulator", "conformance")
MOVES, TILES, PIECES, SIGNAL = "_moves.py.jinja", "tiles.py.jinja", "_pieces.py.jinja", "_signal.py.jinja"
CARRY, EPILOGUE, WAITS, PLACE = "_carry.py.jinja", "_epilogue.py.jinja", "_waits.py.jinja", "_place.py.jinja"
HOPS, HOPS_SUMS, ROUTE_SUM = "_hops.py.jinja", "_hops_sums.py.jinja", "_route_sum.py.jinja"
STORE, SUM, PRODUCT, TICKETS = "_store.py.jinja", "_sum.py.jinja", "_product.py.jinja", "_tickets.py.jinja"
ALWAYS_ALIVE = (Edit("mask=live != 0,", ""),)  # a flag is set whether or not the instance is dead
SILENT = {"silent": 1, "races": False}  # a dead program reads what it likes: races say nothing


def in_template(file: str, old: str, new: str, times: int = 1) -> tuple[Edit, ...]:
    return (Edit(old, new, file, times),)


def in_module(old: str, new: str, times: int = 1) -> tuple[Edit, ...]:
    return (Edit(old, new, times=times),)


# ---- changes of a schedule


def launches(pick: Callable, **changes) -> Callable[[OpSchedule], OpSchedule]:
    """A change of the launches for which `pick` holds. A value that is callable gets the launch."""

    def change(op: OpSchedule) -> OpSchedule:
        made = []
        for n in op.launches:
            values = {k: v(n) if callable(v) else v for k, v in changes.items()}
            made.append(replace(n, **values) if pick(n) else n)
        return replace(op, launches=tuple(made))

    return change


def moves(**changes) -> Callable[[OpSchedule], OpSchedule]:
    """A change of every launch's moves."""
    return launches(lambda n: n.moves, moves=lambda n: tuple(replace(m, **changes) for m in n.moves))


def always(n) -> bool:
    return True


def words(text: str) -> str:
    """One line of a message."""
    return re.sub(r"\s+", " ", text).strip()
