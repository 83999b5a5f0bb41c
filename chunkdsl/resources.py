"""Finds grammars/, templates/ and specs/ in a wheel, an editable install and a bare checkout."""

from __future__ import annotations

import os  # not pathlib, whose import costs `check` 6 ms


def folder(name: str) -> str:
    """Path of the folder `grammars`, `templates` or `specs`. FileNotFoundError if this copy of chunkdsl lacks it."""
    package = os.path.dirname(os.path.realpath(__file__))
    for place in (package, os.path.dirname(package)):
        found = os.path.join(place, name)
        if os.path.isdir(found):
            return found
    raise FileNotFoundError(f"chunkdsl's {name}/ is missing beside {package}")


def read(name: str, file: str) -> str:
    """Text of a file in such a folder."""
    with open(os.path.join(folder(name), file), encoding="utf-8") as stream:
        return stream.read()
