"""The parser's tables, kept between processes: building them takes longer than all else that `check` does.

Lark writes and reads them, and knows a file that is not its own or not of this grammar; here is only where they lie.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path

import lark


def folder() -> Path:
    """Where the user's programs keep what they can make again (XDG Base Directory Specification)."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "chunkdsl"


def kept(grammar: str, **options) -> lark.Lark:
    """The LALR parser of a grammar, from the user's cache where an earlier process left it; else it is left there.

    A cache that cannot be read or written costs time, never a failure.
    """
    version = f"{lark.__version__} {sys.version_info[:2]}"
    name = hashlib.sha256(f"{version} {sorted(options)} {grammar}".encode()).hexdigest()[:24]
    try:
        place = folder() / f"{name}.lark"
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Lark writes in place: one process at a time. A file that a killed one left half is replaced by the next.
        with open(place.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return lark.Lark(grammar, cache=str(place), **options)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return lark.Lark(grammar, **options)
