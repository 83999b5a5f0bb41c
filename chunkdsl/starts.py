"""The shipped specs as texts to start from. Those that need a file beside them are left out."""

from __future__ import annotations

import os
import re
from textwrap import shorten

from chunkdsl.record import record
from chunkdsl.resources import folder

_NEEDS_A_FILE = re.compile(r'^(?:use|kernel)\b[^"#]*"', re.MULTILINE)


@record
class Start:
    """`summary`: the first sentence of the comment at the head of `text`."""

    text: str
    summary: str


def starts() -> dict[str, Start]:
    """By name, in order of the alphabet."""
    place = folder("specs")
    found = {}
    for file in sorted(os.listdir(place)):
        name, suffix = os.path.splitext(file)
        if suffix != ".chunk":
            continue
        with open(os.path.join(place, file), encoding="utf-8") as stream:
            text = stream.read()
        if not _NEEDS_A_FILE.search(text):
            comment = " ".join(re.match(r"(?:#[^\n]+\n)+", text)[0].replace("#", "").split())
            found[name] = Start(text, shorten(re.match(r".*?\.(?= |$)|.*", comment)[0], 100, placeholder=" ..."))
    return found
