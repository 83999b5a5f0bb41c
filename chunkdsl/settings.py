"""`[tool.chunkdsl]` of the nearest pyproject.toml that has one, and which findings are wanted. Runs nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from chunkdsl.check.files import bad_setting
from chunkdsl.diagnostics import Diagnostic, Report, Severity
from chunkdsl.record import record
from chunkdsl.source import Source, Span

FILE = "pyproject.toml"
KEYS = ("select", "ignore", "paths")
# Importing the reader of TOML takes as long as a tenth of `check`, so it is imported for files that may have a table.
_TABLE = re.compile(rb"tool[ \t]*\.[ \t]*[\"']?chunkdsl|^[ \t]*\[[ \t]*tool[ \t]*\]", re.MULTILINE)
_CODES = re.compile(r"CD[0-9]{0,3}")


@record
class Settings:
    """`select` and `ignore`: codes or beginnings of codes, an empty `select` is everything. `paths`: relative to the
    current folder."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def wants(self, d: Diagnostic) -> bool:
        """The longest beginning that fits decides. An error that says that something could not run (CD0) is always
        wanted."""
        if not (self.select or self.ignore) or (d.severity is Severity.ERROR and d.code.startswith("CD0")):
            return True
        chosen = max((len(c) for c in self.select or ("CD",) if d.code.startswith(c)), default=-1)
        refused = max((len(c) for c in self.ignore if d.code.startswith(c)), default=-1)
        return chosen > refused


def is_selector(text: str) -> bool:
    return bool(_CODES.fullmatch(text))


def unknown_selectors(chosen: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Those with which no code begins, and the codes that resemble each."""
    if not (wanted := tuple(chosen)):
        return {}
    from chunkdsl.check.explain import load_rules, near_rules  # only a setting pays for it

    rules = load_rules()
    return {text: tuple(near_rules(text)) for text in wanted if not any(code.startswith(text) for code in rules)}


def read_settings(folder: str = ".") -> tuple[Settings, Report | None]:
    """The settings for a folder, which exists, and a report on the file if it has mistakes."""
    while True:
        path = os.path.normpath(os.path.join(folder, FILE))
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            data = b""
        if _TABLE.search(data):
            found = _parse(path, data)
            if found is not None:
                return found
        if os.path.samefile(folder, os.path.join(folder, os.pardir)):
            return Settings(), None
        folder = os.path.join(folder, os.pardir)


def _parse(path: str, data: bytes) -> tuple[Settings, Report | None] | None:
    """None if the file has no such table after all."""
    import tomllib

    text = data.decode("utf-8", "replace")
    report = Report(Source(path, text))
    try:
        table = tomllib.loads(text).get("tool", {}).get("chunkdsl")
    except tomllib.TOMLDecodeError as error:
        report.add(bad_setting(f"not TOML: {error}", None))
        return Settings(), report
    if table is None:
        return None
    if not isinstance(table, dict):
        report.add(bad_setting("`tool.chunkdsl` is a table", None))
        return Settings(), report
    values = {key: _read(key, value, report) for key, value in table.items()}
    folder = os.path.dirname(path)
    paths = tuple(os.path.join(folder, p) for p in values.get("paths", ()))
    settings = Settings(values.get("select", ()), values.get("ignore", ()), paths)
    return settings, report if report.failed else None


def _read(key: str, value: object, report: Report) -> tuple[str, ...]:
    span = _place(key, report.source.text)
    if key not in KEYS:
        from difflib import get_close_matches

        near = get_close_matches(key, KEYS, 1)
        report.add(bad_setting(f"chunkdsl has no setting `{key}`", span, near[0] if near else ""))
    elif not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        report.add(bad_setting(f"`{key}` is a list of strings", span))
    elif key != "paths" and (wrong := [v for v in value if not is_selector(v)]):
        report.add(bad_setting(f"`{key}` lists codes such as CD203, or beginnings such as CD2, not {wrong[0]!r}", span))
    elif key != "paths" and (unknown := unknown_selectors(value)):
        (text, near), *_ = unknown.items()
        place = _place_of(text, span, report.source.text)
        report.add(bad_setting(f"`{key}`: there is no rule {text}", place, *near[:1]))
    else:
        return tuple(value)
    return ()


def _place(key: str, text: str) -> Span | None:
    """Where a key of the table seems to be written."""
    table = re.search(r"^\[tool\.chunkdsl\]", text, re.MULTILINE)
    match = re.compile(rf"^[ \t]*[\"']?({re.escape(key)})\b", re.MULTILINE).search(text, table.end() if table else 0)
    return Span(*match.span(1)) if match else None


def _place_of(code: str, key: Span | None, text: str) -> Span | None:
    """Where a code seems to be written behind its key."""
    match = key and re.compile(rf"\b{code}\b").search(text, key.end)
    return Span(*match.span()) if match else key


def selectors(text: str) -> Iterable[str]:
    """`CD2,CD101`, in any case. ValueError for anything else."""
    found = [part.strip().upper() for part in text.split(",")]
    if not all(map(is_selector, found)):
        raise ValueError
    return found
