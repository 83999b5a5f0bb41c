"""One thing that may be typed next."""

from __future__ import annotations

from chunkdsl.record import record


@record
class Choice:
    """`kind`: keyword, function, tensor, dim, axis, policy, op, plan, kernel, value, key, option, dtype."""

    text: str
    kind: str
    detail: str = ""
    text_of_help: str = ""
    first: bool = False  # it mends something here, so it is shown before the others


def named(declared: dict[str, str], kind: str) -> list[Choice]:
    """The file's names of one kind. `declared`: the kind of each."""
    return [Choice(name, kind) for name, k in declared.items() if k == kind]
