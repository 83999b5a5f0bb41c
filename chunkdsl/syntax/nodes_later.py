"""Nodes of the items that are parsed whole and then refused by one diagnostic: plans, kernels, gradients.

Part of `nodes`, which names them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkdsl.record import record
from chunkdsl.syntax.node import Name, Node

if TYPE_CHECKING:
    from chunkdsl.syntax.nodes import Axes, Literal, PolicyUse, Size, Text


@record
class Region(Node):
    base: Name
    index: tuple[Size, ...]
    part: tuple[Size, Size] | None


@record
class Transfer(Node):
    """`send`/`fetch`: `peer` has one size for each mesh axis it names."""

    action: str
    region: Region
    peer: tuple[Size, ...]
    into: Region | None
    adding: bool
    policy: PolicyUse | None


@record
class Let(Node):
    name: Name
    value: Size


@record
class Loop(Node):
    name: Name
    bounds: tuple[Size, ...]
    body: tuple[Step, ...]


@record
class Condition(Node):
    op: str
    left: Size
    right: Size


@record
class Branch(Node):
    condition: Condition
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@record
class LaneBlock(Node):
    number: Size
    body: tuple[Step, ...]


Step = Transfer | Let | Loop | Branch | LaneBlock


@record
class Plan(Node):
    name: Name
    tensor: Name
    contract: Name
    axes: Axes
    body: tuple[Step, ...]


@record
class TensorArg(Node):
    """`block`: of `A = a_desc[BM, BK] : [m, k]`, what a descriptor made on the host loads and stores at once."""

    name: Name
    pointer: Name
    block: tuple[Size, ...] | None
    dtype: Name | None
    dims: tuple[Size, ...]
    partial: Axes | None


@record
class ScalarArg(Node):
    """`arg stride_am = A.stride(0)`: `attribute` is (tensor, method, index)."""

    name: Name
    value: Size | Literal | Text | None
    attribute: tuple[str, str, int] | None


@record
class Grid(Node):
    sizes: tuple[Size, ...]


@record
class Const(Node):
    values: tuple[tuple[Name, int | float | bool | str], ...]


Binding = TensorArg | ScalarArg | Grid | Const


@record
class Kernel(Node):
    name: Name
    params: tuple[Name, ...]
    results: tuple[Name, ...]
    path: Text
    function: Name
    bindings: tuple[Binding, ...]


@record
class UsePlan(Node):
    path: Text
    name: Name
    contract: Name
    axes: Axes


@record
class Gradient(Node):
    op: Name
    results: tuple[Name, ...]
    dtypes: tuple[Name | None, ...]  # `dw as f32`, for each result
    saves: tuple[Name, ...]
    policy: PolicyUse | None
