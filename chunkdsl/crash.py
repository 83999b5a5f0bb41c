"""What is said when chunkdsl itself fails: one finding that asks for a report, and a traceback only on request."""

from __future__ import annotations

import os
import sys

from chunkdsl.check.files import internal_error
from chunkdsl.diagnostics import Diagnostic


def explain_crash(error: Exception) -> Diagnostic:
    """The finding for an exception that no input should cause. Prints the traceback to stderr if CHUNKDSL_DEBUG=1."""
    if os.environ.get("CHUNKDSL_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" in {where.tb_frame.f_code.co_qualname}" if where is not None else ""
    message = str(error).partition("\n")[0][:200]
    return internal_error(f"{type(error).__name__}{place}{': ' if message else ''}{message}")
