"""Every rule: one function with a code, a name, a severity and the docstring that `explain` prints.

A rule's docstring says what and why, then holds two indented examples under the lines `Fails:` and `Mended:`;
the tests run both. A rule function takes what it needs and returns a `Finding`; the decorator makes the
`Diagnostic` of it, so that code, name and severity are written in one place.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import wraps

from chunkdsl.diagnostics import Diagnostic, Fix, Label, Severity
from chunkdsl.record import record
from chunkdsl.source import Span


@record
class Finding:
    """What a rule function returns: a diagnostic without the parts that its rule fixes."""

    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    help: str = ""
    fixes: tuple[Fix, ...] = ()


@record
class Rule:
    code: str
    name: str
    severity: Severity
    text: str  # the docstring without its examples
    fails: str  # a spec (or a fragment of a command, for CD0) that breaks the rule
    mended: str


RULES: dict[str, Rule] = {}


def rule(code: str, name: str, severity: Severity = Severity.ERROR) -> Callable:
    """Register the decorated function as a rule. ValueError if the code or name is taken or an example is missing."""

    def register(function: Callable[..., Finding]) -> Callable[..., Diagnostic]:
        doc = inspect.cleandoc(function.__doc__ or "")
        text, _, examples = doc.partition("\nFails:\n")
        fails, _, mended = examples.partition("\nMended:\n")
        if not (fails.strip() and mended.strip()):
            raise ValueError(f"{code} {function.__name__}: the docstring needs `Fails:` and `Mended:` examples")
        if code in RULES or any(r.name == name for r in RULES.values()):
            raise ValueError(f"rule {code} {name} is registered twice")
        clean = textwrap.dedent(fails).strip("\n") + "\n", textwrap.dedent(mended).strip("\n") + "\n"
        RULES[code] = Rule(code, name, severity, text.strip(), *clean)

        @wraps(function)
        def diagnose(*args, **kwargs) -> Diagnostic:
            f = function(*args, **kwargs)
            return Diagnostic(code, name, severity, f.message, f.span, f.label, f.labels, f.help, f.fixes)

        diagnose.code = code
        return diagnose

    return register
