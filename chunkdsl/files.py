"""Finds the specs below the paths that a user gives, reads them and writes them back. Parses nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from chunkdsl.check import files as rules
from chunkdsl.diagnostics import Report
from chunkdsl.source import Source

SUFFIX = ".chunk"
STDIN = "-"
LARGEST = 4 << 20  # bytes of a spec: 80,000 items
_OPENED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_MARK = b"\xef\xbb\xbf"


def read(paths: Iterable[str], stdin: bool = False) -> Iterator[Report]:
    """A report for each spec, in the order given and by name inside folders, each path once. `stdin`: the path `-` is
    standard input.

    The report of a path that cannot be read has an empty source and says why; so does that of a folder without specs.
    """
    seen: set[str] = set()
    for path in paths:
        if stdin and path == STDIN:
            found: Iterable[Report] = () if path in seen else (read_stdin(),)
        else:
            found = _read_folder(path) if os.path.isdir(path) else (_read_file(path),)
        for report in found:
            if report.source.path not in seen:
                seen.add(report.source.path)
                yield report


def read_stdin() -> Report:
    """The spec on standard input, as one of the path `-`."""
    if sys.stdin is None:
        return _refuse(STDIN, "standard input is closed")
    try:
        data = sys.stdin.buffer.read(LARGEST + 1)
    except OSError as error:  # of a folder
        return _refuse(STDIN, error)
    return decode(STDIN, data)


def rewrite(report: Report, text: str) -> bool:
    """Make `text` the content of the file that was read; a byte order mark stays. False, with a finding in `report`, if
    it cannot be written."""
    from chunkdsl.replace import replace_file

    path = report.source.path
    try:
        with open(path, "rb") as file:
            mark = _MARK if file.read(len(_MARK)) == _MARK else b""
        replace_file(path, mark + text.encode("utf-8"))
    except (OSError, ValueError) as error:
        report.add(rules.unwritable_spec(getattr(error, "strerror", None) or str(error)))
        return False
    return True


def _read_folder(path: str) -> Iterator[Report]:
    refused: list[OSError] = []
    found: list[str] = []
    for folder, folders, names in os.walk(path, onerror=refused.append):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        found += [os.path.join(folder, n).replace(os.sep, "/") for n in names if n.endswith(SUFFIX)]
    for error in refused:
        yield _refuse(error.filename, error)
    for file in sorted(found):
        yield _read_file(file)
    if not found and not refused:
        report = Report(Source(path, ""))
        report.add(rules.no_specs_in_folder())
        yield report


def _read_file(path: str) -> Report:
    """Refuses what could be read for ever (a pipe, a device), unless a shell has opened it for us: `<(command)`."""
    if os.path.exists(path) and not os.path.isfile(path) and not path.startswith(_OPENED):
        return _refuse(path, "it is no regular file")
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return _refuse(path, error)
    return decode(path, data)


def decode(path: str, data: bytes) -> Report:
    """A report on the text that bytes are; on nothing, and why, if they are not UTF-8 or too many. A byte order mark is
    dropped."""
    if len(data) > LARGEST:
        return _refuse(path, f"it is larger than {LARGEST >> 20} MiB")
    try:
        return Report(Source(path, data.removeprefix(_MARK).decode("utf-8")))
    except UnicodeDecodeError as error:
        report = Report(Source(path, ""))
        offset = error.start + len(_MARK) * data.startswith(_MARK)
        report.add(rules.not_utf_8(offset, data.count(b"\n", 0, offset) + 1))
        return report


def _refuse(path: str, error: Exception | str) -> Report:
    report = Report(Source(path, ""))
    report.add(rules.unreadable_path(getattr(error, "strerror", None) or str(error)))
    return report
