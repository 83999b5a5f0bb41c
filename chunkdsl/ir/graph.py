"""The typed program: what `lower` makes of a tree and what the schedule is made from. Immutable.

An op is a list of statements over values. A `Value` is one operation with its operands and its type; a name
bound by a statement or a parameter is one `Value` object, however often it is used (shared by identity).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from chunkdsl.ir.policy import Policy
from chunkdsl.ir.types import DimRange, Mesh, SymSize, TensorType
from chunkdsl.record import record
from chunkdsl.source import Source, Span

if TYPE_CHECKING:
    from chunkdsl.plan.routing import Routing


@record(eq=False)
class Value:
    """One operation. Kinds and their `args` / `attrs`:

    param        ()            name
    const        ()            number (int or float); type is scalar f32
    all_gather   (t,)          axis (mesh axis index), dim; over two axes together also inner (the second's index)
    reduce_scatter (t,)        axis, dim; the same
    all_reduce   (t,)          axis; the same
    all_to_all   (t,)          axis, source, target (dimensions: Shard(source) becomes Shard(target))
    matmul       (a, b)        (operands 2-D; a transposed operand is a `transpose` value)
    transpose    (t,)
    pick         (t,)          index
    add sub mul div  (a, b)
    neg gelu relu silu tanh   (t,)
    swiglu       (a, b)        silu(a) * b
    gelu_grad relu_grad silu_grad tanh_grad  (t,)   the derivative of the function at t
    sum_rows     (t,)          [m, n] -> [n]
    stack        matrices      [m, n] each -> [count, m, n]; a result of a derived op
    cast         (t,)          (dtype is the type's)
    rms_norm     (t, g)        eps; t / sqrt(mean of a row's squares + eps) * g
    rms_norm_grad (t, d)       eps; the cotangent of t where d is that of t / sqrt(mean of a row's squares + eps)
    kernel       arguments     item (name of a `kernel` item); its first result
    output       (kernel,)     index; another result of the call
    """

    kind: str
    args: tuple[Value, ...]
    type: TensorType
    span: Span
    attrs: dict[str, int | float | str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)  # of collectives and matmuls


def axes_of(value: Value) -> tuple[int, ...]:
    """Indices of the mesh axes that a collective runs over, outer first."""
    return tuple([int(value.attrs[key]) for key in ("axis", "inner") if key in value.attrs])


@record(eq=False)
class Param:
    name: str
    value: Value
    inout: bool
    span: Span


@record(eq=False)
class Statement:
    """`target = value`; the value is evaluated in f32 and rounded once, to `value.type.dtype`. `text`: of a statement
    that was derived and stands nowhere in the source."""

    target: str
    value: Value
    span: Span
    text: str = ""


@record(eq=False)
class Op:
    name: str
    params: tuple[Param, ...]
    results: tuple[tuple[str, Value], ...]
    statements: tuple[Statement, ...]
    span: Span
    updates: tuple[tuple[str, Value], ...] = ()  # what `inout` parameters hold after the call


@record
class Gradient:
    """An op and its backward pass. `forward`: the op that also returns what is saved (the op itself where nothing is).
    `wanted`: where each parameter of `backward` comes from: ("gradient" of a result, "input" or "output" of `forward`,
    index)."""

    op: str
    forward: str
    backward: str
    wanted: tuple[tuple[str, int], ...]


@record(eq=False)
class Program:
    source: Source
    mesh: Mesh
    ranges: dict[str, DimRange]  # run-time dims, in order of declaration
    constants: dict[str, SymSize]  # dims with a fixed or derived size
    tensors: dict[str, TensorType]
    ops: tuple[Op, ...]
    plans: dict[str, Routing] = field(default_factory=dict)  # routes that a policy may name
    imported: tuple[str, ...] = ()  # texts of the plan files that the source brings in
    gradients: tuple[Gradient, ...] = ()
    kernels: dict[str, object] = field(default_factory=dict)  # items by name, as `lower.kernel_items` declares them
