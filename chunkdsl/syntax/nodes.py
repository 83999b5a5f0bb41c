"""The language on one page: the syntax tree of a `.chunk` file.

Names and shapes only; nothing here is resolved or checked. Every node has the span of its text.
"""

from __future__ import annotations

from dataclasses import dataclass

from chunkdsl.source import Span


@dataclass(frozen=True, slots=True)
class Node:
    span: Span


@dataclass(frozen=True, slots=True)
class Name(Node):
    text: str


# ---- integer expressions: sizes, ranks, grids


@dataclass(frozen=True, slots=True)
class SizeInt(Node):
    value: int


@dataclass(frozen=True, slots=True)
class SizeName(Node):
    name: str


@dataclass(frozen=True, slots=True)
class SizeBinary(Node):
    op: str  # + - * / mod
    left: Size
    right: Size


@dataclass(frozen=True, slots=True)
class SizeCall(Node):
    function: Name
    args: tuple[Size, ...]


Size = SizeInt | SizeName | SizeBinary | SizeCall

# ---- declarations


@dataclass(frozen=True, slots=True)
class Version(Node):
    number: int


@dataclass(frozen=True, slots=True)
class Axis(Node):
    name: Name
    size: int
    link: Name | None


@dataclass(frozen=True, slots=True)
class Mesh(Node):
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Bounds(Node):
    low: int
    high: int
    step: int


@dataclass(frozen=True, slots=True)
class Dim(Node):
    name: Name
    value: Bounds | Size


@dataclass(frozen=True, slots=True)
class Axes(Node):
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Layout(Node):
    kind: Name  # zigzag, cyclic, ragged
    axes: Axes
    argument: int | None


@dataclass(frozen=True, slots=True)
class TypeDim(Node):
    size: Size
    place: Axes | Layout | None


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    dtype: Name
    dims: tuple[TypeDim, ...]
    partial: Axes | None


@dataclass(frozen=True, slots=True)
class Tensor(Node):
    name: Name
    type: TypeExpr


# ---- policies


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """`swizzle`, `own_sms(16)`, `hierarchical(ring, direct)`."""

    name: str
    args: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Bytes(Node):
    count: int


@dataclass(frozen=True, slots=True)
class Tile(Node):
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Number(Node):
    value: int | float


@dataclass(frozen=True, slots=True)
class Text(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Rows(Node):
    """`512 along M`."""

    count: int
    dim: Name


@dataclass(frozen=True, slots=True)
class Count(Node):
    """`8 per shard`."""

    count: int
    unit: Name


PolicyValue = Choice | Bytes | Tile | Number | Text | Rows | Count


@dataclass(frozen=True, slots=True)
class Pair(Node):
    key: Name
    value: PolicyValue


@dataclass(frozen=True, slots=True)
class PolicyUse(Node):
    """`with base { pairs }`; either part may be missing."""

    base: Name | None
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Policy(Node):
    name: Name
    pairs: tuple[Pair, ...]


# ---- tensor expressions


@dataclass(frozen=True, slots=True)
class Ref(Node):
    name: str


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: int | float


@dataclass(frozen=True, slots=True)
class Binary(Node):
    op: str  # + - * / @
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(Node):
    operand: Expr


@dataclass(frozen=True, slots=True)
class Attr(Node):
    base: Expr
    name: Name


@dataclass(frozen=True, slots=True)
class Pick(Node):
    base: Expr
    index: int


@dataclass(frozen=True, slots=True)
class MoveArg(Node):
    """`M -> K`."""

    source: Name
    target: Name


@dataclass(frozen=True, slots=True)
class KeywordArg(Node):
    name: Name
    value: Expr | Axes | Text


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: Name
    args: tuple[Expr | MoveArg | KeywordArg, ...]


@dataclass(frozen=True, slots=True)
class Group(Node):
    """A parenthesis, with the policy that closes it if there is one."""

    inner: Expr
    policy: PolicyUse | None


Expr = Ref | Literal | Binary | Negate | Attr | Pick | Call | Group

# ---- ops


@dataclass(frozen=True, slots=True)
class Param(Node):
    name: Name
    inout: bool


@dataclass(frozen=True, slots=True)
class Statement(Node):
    targets: tuple[Name, ...]
    value: Expr
    policy: PolicyUse | None


@dataclass(frozen=True, slots=True)
class Op(Node):
    name: Name
    params: tuple[Param, ...]
    results: tuple[Name, ...]
    body: tuple[Statement, ...]


# ---- items that later issues build: parsed whole, refused by one diagnostic


@dataclass(frozen=True, slots=True)
class Region(Node):
    base: Name
    index: tuple[Size, ...]
    part: tuple[Size, Size] | None


@dataclass(frozen=True, slots=True)
class Transfer(Node):
    """`send`/`fetch`: `peer` has one size for each mesh axis it names."""

    action: str
    region: Region
    peer: tuple[Size, ...]
    into: Region | None
    adding: bool
    policy: PolicyUse | None


@dataclass(frozen=True, slots=True)
class Let(Node):
    name: Name
    value: Size


@dataclass(frozen=True, slots=True)
class Loop(Node):
    name: Name
    bounds: tuple[Size, ...]
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Condition(Node):
    op: str
    left: Size
    right: Size


@dataclass(frozen=True, slots=True)
class Branch(Node):
    condition: Condition
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LaneBlock(Node):
    number: Size
    body: tuple[Step, ...]


Step = Transfer | Let | Loop | Branch | LaneBlock


@dataclass(frozen=True, slots=True)
class Plan(Node):
    name: Name
    tensor: Name
    contract: Name
    axes: Axes
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class TensorArg(Node):
    name: Name
    pointer: Name
    dtype: Name | None
    dims: tuple[Size, ...]
    partial: Axes | None


@dataclass(frozen=True, slots=True)
class ScalarArg(Node):
    """`arg stride_am = A.stride(0)`: `attribute` is (tensor, method, index)."""

    name: Name
    value: Size | Literal | Text | None
    attribute: tuple[str, str, int] | None


@dataclass(frozen=True, slots=True)
class Grid(Node):
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Const(Node):
    values: tuple[tuple[Name, int | float | bool | str], ...]


Binding = TensorArg | ScalarArg | Grid | Const


@dataclass(frozen=True, slots=True)
class Kernel(Node):
    name: Name
    params: tuple[Name, ...]
    results: tuple[Name, ...]
    path: Text
    function: Name
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class UsePlan(Node):
    path: Text
    name: Name
    contract: Name
    axes: Axes


@dataclass(frozen=True, slots=True)
class Gradient(Node):
    op: Name
    results: tuple[Name, ...]
    saves: tuple[Name, ...]
    policy: PolicyUse | None


Item = Version | Mesh | Dim | Tensor | Policy | Op | Plan | Kernel | UsePlan | Gradient


@dataclass(frozen=True, slots=True)
class File(Node):
    items: tuple[Item, ...]
