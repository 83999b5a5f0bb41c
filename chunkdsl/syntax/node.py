"""What every node of the syntax tree has, and the name of anything."""

from __future__ import annotations

from chunkdsl.record import record
from chunkdsl.source import Span


@record
class Node:
    span: Span


@record
class Name(Node):
    text: str
