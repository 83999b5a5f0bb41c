"""Replaces a file: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile


def replace_file(path: str, data: bytes) -> None:
    """Make `data` the content of the file. OSError or ValueError (a NUL in the path) if it cannot be written.

    A reader sees the old file or the new one, never a part, and after a failure the old one. A link stays a link, and
    a file that was there keeps its permissions.
    """
    path = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int:
    """Permissions of the file that is replaced, or those that a new file gets."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
