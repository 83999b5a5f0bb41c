"""The language on one page: the syntax tree of a `.chunk` file.

Names and shapes only; nothing here is resolved or checked. Every node has the span of its text.
"""

from __future__ import annotations

from chunkdsl.record import record
from chunkdsl.syntax.node import Name, Node
from chunkdsl.syntax.nodes_later import (  # noqa: F401 (the whole language under one name)
    Binding,
    Branch,
    Condition,
    Const,
    Gradient,
    Grid,
    Kernel,
    LaneBlock,
    Let,
    Loop,
    Plan,
    Region,
    ScalarArg,
    Step,
    TensorArg,
    Transfer,
    UsePlan,
)

# ---- integer expressions: sizes, ranks, grids


@record
class SizeInt(Node):
    value: int


@record
class SizeName(Node):
    name: str


@record
class SizeBinary(Node):
    op: str  # + - * / mod
    left: Size
    right: Size


@record
class SizeCall(Node):
    function: Name
    args: tuple[Size, ...]


Size = SizeInt | SizeName | SizeBinary | SizeCall


@record
class Version(Node):
    number: int


@record
class Axis(Node):
    name: Name
    size: int
    link: Name | None


@record
class Mesh(Node):
    axes: tuple[Axis, ...]


@record
class Bounds(Node):
    low: int
    high: int
    step: int


@record
class Dim(Node):
    name: Name
    value: Bounds | Size


@record
class Axes(Node):
    names: tuple[Name, ...]


@record
class Layout(Node):
    kind: Name  # zigzag, cyclic, ragged
    axes: Axes
    argument: int | None


@record
class TypeDim(Node):
    size: Size
    place: Axes | Layout | None


@record
class TypeExpr(Node):
    dtype: Name
    dims: tuple[TypeDim, ...]
    partial: Axes | None


@record
class Tensor(Node):
    name: Name
    type: TypeExpr


# ---- policies


@record
class Choice(Node):
    """`swizzle`, `own_sms(16)`, `hierarchical(ring, direct)`."""

    name: str
    args: tuple[str | int, ...]


@record
class Bytes(Node):
    count: int


@record
class Tile(Node):
    dims: tuple[int, ...]


@record
class Number(Node):
    value: int | float


@record
class Text(Node):
    value: str


@record
class Rows(Node):
    """`512 along M`."""

    count: int
    dim: Name


@record
class Count(Node):
    """`8 per shard`."""

    count: int
    unit: Name


PolicyValue = Choice | Bytes | Tile | Number | Text | Rows | Count


@record
class Pair(Node):
    key: Name
    value: PolicyValue


@record
class PolicyUse(Node):
    """`with base { pairs }`; either part may be missing."""

    base: Name | None
    pairs: tuple[Pair, ...]


@record
class Policy(Node):
    name: Name
    pairs: tuple[Pair, ...]


# ---- tensor expressions


@record
class Ref(Node):
    name: str


@record
class Literal(Node):
    value: int | float


@record
class Binary(Node):
    op: str  # + - * / @
    left: Expr
    right: Expr


@record
class Negate(Node):
    operand: Expr


@record
class Attr(Node):
    base: Expr
    name: Name


@record
class Pick(Node):
    base: Expr
    index: int


@record
class MoveArg(Node):
    """`M -> K`."""

    source: Name
    target: Name


@record
class KeywordArg(Node):
    name: Name
    value: Expr | Axes | Text


@record
class Call(Node):
    function: Name
    args: tuple[Expr | MoveArg | KeywordArg, ...]


@record
class Group(Node):
    """A parenthesis, with the policy that closes it if there is one."""

    inner: Expr
    policy: PolicyUse | None


Expr = Ref | Literal | Binary | Negate | Attr | Pick | Call | Group


@record
class Param(Node):
    name: Name
    inout: bool


@record
class Statement(Node):
    targets: tuple[Name, ...]
    value: Expr
    policy: PolicyUse | None


@record
class Op(Node):
    name: Name
    params: tuple[Param, ...]
    results: tuple[Name, ...]
    body: tuple[Statement, ...]


Item = Version | Mesh | Dim | Tensor | Policy | Op | Plan | Kernel | UsePlan | Gradient


@record
class File(Node):
    items: tuple[Item, ...]
