"""What the compiler says about a spec: one value for every finding, collected, never raised half-way.

A `Diagnostic` is data. Rendering lives in `report/`, the texts that `explain` prints in the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from chunkdsl.record import record
from chunkdsl.source import Source, Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@record
class Label:
    """A second place and what is there (the declaration, the other end of a race)."""

    span: Span
    message: str


@record
class Edit:
    """Replace `span` by `text`."""

    span: Span
    text: str


@record
class Fix:
    """A mend. `safe` ones keep the meaning; the others are suggestions for a person."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = False


@record
class Diagnostic:
    """One finding. `code` and `name` are those of a rule in `check/registry.py`; `span` None means the whole file."""

    code: str
    name: str
    severity: Severity
    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    help: str = ""
    fixes: tuple[Fix, ...] = ()

    def __hash__(self) -> int:
        # Hundreds are looked up after a keystroke: place and message tell nearly all apart.
        return hash((self.code, self.message, self.span.start if self.span else -1))


class Report:
    """Findings of one source, in order of place, each once.

    `watch` is called between two items, or statements of an op: what it raises ends the work."""

    def __init__(self, source: Source, watch: Callable[[], object] = bool) -> None:
        self.source, self.watch = source, watch
        self._found: dict[Diagnostic, None] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        self._found.setdefault(diagnostic)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for d in diagnostics:
            self.add(d)

    def keep(self, wanted: Callable[[Diagnostic], bool]) -> None:
        """Drop the findings that are not wanted."""
        self._found = {d: None for d in self._found if wanted(d)}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        def key(d: Diagnostic) -> tuple[int, int, str, str]:
            return (d.span.start if d.span else -1, d.span.end if d.span else -1, d.code, d.message)

        return tuple(sorted(self._found, key=key))

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self._found)
