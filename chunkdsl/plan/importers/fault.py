"""What is wrong with a plan file, and where in its text."""

from __future__ import annotations

from enum import Enum

from chunkdsl.source import Span


class Kind(Enum):
    """Which rule of `check/imports.py` says it."""

    MALFORMED = "malformed"  # the text is not of its format
    UNSUPPORTED = "unsupported"  # its format has it, a route has not
    BROKEN = "broken"  # carried out as it stands, it fails: a deadlock, a race, a chunk that nobody sent
    MISFIT = "misfit"  # a good plan, and not the one that the spec asks for


class PlanFileError(ValueError):
    """`span`: code points of the file's text, None for the file as a whole. `help` says how to mend it."""

    def __init__(self, kind: Kind, message: str, span: Span | None = None, help: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.span, self.help = kind, message, span, help


def malformed(message: str, span: Span | None = None, help: str = "") -> PlanFileError:
    return PlanFileError(Kind.MALFORMED, message, span, help)


def unsupported(message: str, span: Span | None = None, help: str = "") -> PlanFileError:
    return PlanFileError(Kind.UNSUPPORTED, message, span, help)


def broken(message: str, span: Span | None = None, help: str = "") -> PlanFileError:
    return PlanFileError(Kind.BROKEN, message, span, help)


def misfit(message: str, span: Span | None = None, help: str = "") -> PlanFileError:
    return PlanFileError(Kind.MISFIT, message, span, help)
