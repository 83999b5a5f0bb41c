"""What a lint says, and the table of lints. A lint reads one text and knows nothing of the kernel's meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

TEXTS = ("ttgir", "ptx", "amdgcn", "source", "compiled")


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` is 1-based in `text` ("ttgir", "ptx", "amdgcn", "source"); 0 when the finding is about the whole kernel.
    `excerpt` is the offending line, `kernel` and `target` are filled in by `lint`."""

    lint: str
    text: str
    line: int
    excerpt: str
    message: str
    kernel: str = ""
    target: str = ""

    def __str__(self) -> str:
        where = f"{self.kernel} for {self.target}: " if self.kernel else ""
        return f"{where}{self.lint}: {self.message} ({self.text}:{self.line}: {self.excerpt.strip()[:120]})"


@dataclass(frozen=True, slots=True)
class Lint:
    """`run(text)` for "ttgir", "ptx", "amdgcn" and "source"; `run(compiled)` for "compiled". `why` is its docstring."""

    name: str
    text: str
    nvidia_only: bool
    why: str
    run: Callable[[object], list[Finding]]


LINTS: dict[str, Lint] = {}


def lint_rule(name: str, text: str, nvidia_only: bool = False) -> Callable:
    """Register a generator of (line, excerpt, message) over `text` as a lint that returns findings."""

    def register(function):
        if name in LINTS or text not in TEXTS or not function.__doc__:
            raise ValueError(f"lint {name}: taken, reads no known text ({text}), or has no docstring")

        def run(subject) -> list[Finding]:
            found = {(line, message): excerpt for line, excerpt, message in function(subject)}
            return [Finding(name, text, line, excerpt, message) for (line, message), excerpt in found.items()]

        LINTS[name] = Lint(name, text, nvidia_only, inspect.cleandoc(function.__doc__), run)
        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        return run

    return register
