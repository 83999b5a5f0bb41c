"""Standard streams that are closed, or that take no more: what is said of them, and where. Opens no file of a user."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

_NOT_TAKEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Closed(io.StringIO):
    """Stands for a closed standard output. What is written is lost, which `flush` tells as an OSError."""

    def flush(self) -> None:
        if self.getvalue():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_streams() -> None:
    """Make standard output and error take any text; a stream that is closed gets one in its place."""
    if sys.stdout is None:
        sys.stdout = Closed()
    if sys.stderr is None:  # there is nobody to tell
        sys.stderr = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def lost_output(error: Exception) -> bool:
    """Whether an error is that of a write to something that was open: its disk is full, or it is closed."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _NOT_TAKEN


def give_up(error: OSError, tell: bool) -> None:
    """Say on standard error, where that takes it, that output was lost. What is left of it goes nowhere, so that
    Python does not try once more when it ends."""
    if tell:
        with contextlib.suppress(OSError):
            print(f"chunkdsl: cannot write the output: {error.strerror or error}", file=sys.stderr, flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            if isinstance(stream, Closed):
                stream.truncate(0)
            else:
                os.dup2(nowhere, stream.fileno())
