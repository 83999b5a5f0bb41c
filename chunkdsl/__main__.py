"""`python -m chunkdsl`, for a bare checkout."""

from chunkdsl.cli import entry

entry()
