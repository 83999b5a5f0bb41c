"""Finds grammars/ and templates/ in a wheel, an editable install and a bare checkout."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """The folder `grammars` or `templates`. FileNotFoundError if this copy of chunkdsl lacks it."""
    package = Path(__file__).resolve().parent
    for place in (package / name, package.parent / name):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"chunkdsl's {name}/ is missing beside {package}")
