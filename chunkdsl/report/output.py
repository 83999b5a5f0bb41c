"""Writes findings in the format asked for, in colour only for a person at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TextIO

from chunkdsl.diagnostics import Report


def write(reports: Sequence[Report], output_format: str = "text", stream: TextIO | None = None) -> None:
    """`output_format` names a module of `report/`, one of `arguments.FORMATS`; `stream` is standard output if left
    out (None)."""
    stream = sys.stdout if stream is None else stream
    if output_format == "text":
        from chunkdsl.report import text

        stream.write(text.render(reports, colour=wants_colour(stream, os.environ)))
    else:
        stream.write(import_module(f"chunkdsl.report.{output_format}").render(reports))


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """True for a terminal that can show it, unless NO_COLOR is set to anything (https://no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
