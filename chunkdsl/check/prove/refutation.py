"""What a proof returns: refutations, each with a counterexample that a person can read.

One refutation stands for all that differ only in ranks, calls and boxes; `more` counts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from chunkdsl.check import plans
from chunkdsl.check.registry import RULES
from chunkdsl.source import Span

KINDS = {
    plans.malformed_plan.code: "structure",
    plans.unsignalled.code: "structure",
    plans.two_signallers.code: "structure",
    plans.cyclic_wait.code: "deadlock",
    plans.programs_wait.code: "residency",
    plans.unordered_accesses.code: "race",
    plans.unwritten.code: "coverage",
    plans.addend_missing.code: "coverage",
    plans.wrong_place.code: "coverage",
    plans.wrong_content.code: "coverage",
    plans.written_twice.code: "coverage",
    plans.counted_twice.code: "double-count",
    plans.reused_early.code: "reuse",
    plans.stale.code: "reuse",
    plans.overtaken.code: "reuse",
}


@dataclass(frozen=True, slots=True)
class Refutation:
    """Why a plan is wrong. `line`: spec line of the task that fails, `other_line`: that of the other end (0: none).

    kind: coverage, double-count, race, reuse, deadlock, residency, structure, route. `message` is one line,
    `counterexample` several; `more` says how many others of the same form there are.
    """

    code: str
    message: str
    counterexample: str
    line: int
    label: str = ""
    other_line: int = 0
    other_label: str = ""
    more: int = 0
    span: Span | None = None  # the exact place, where it is known
    mend: str = ""  # what helps, if not what the rule says

    @property
    def kind(self) -> str:
        return KINDS.get(self.code, "route")

    @property
    def name(self) -> str:
        return RULES[self.code].name

    def __str__(self) -> str:
        return f"{self.code} {self.name}: {self.message}\n{self.counterexample}"


class Findings:
    """Collects refutations; of those with one key only the first is worked out."""

    def __init__(self) -> None:
        self._first: dict[Hashable, Refutation] = {}
        self._count: dict[Hashable, int] = {}

    def add(self, code: str, key: Hashable, make: Callable[[], Refutation]) -> None:
        key = code, key
        if key not in self._first:
            self._first[key] = make()
            self._count[key] = 0
        else:
            self._count[key] += 1

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def refutations(self) -> list[Refutation]:
        found = []
        for key, r in self._first.items():
            more = self._count[key]
            text = r.counterexample + (f"\nand {more} more like it" if more else "")
            found.append(replace(r, counterexample=text, more=more))
        return found
