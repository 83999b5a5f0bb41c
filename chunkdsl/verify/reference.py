"""The meaning of an op: its typed statements evaluated on whole tensors in float64. Knows nothing of schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from chunkdsl.ir.graph import Op, Value

LINEAR = frozenset(
    "param const all_gather reduce_scatter all_reduce all_to_all matmul transpose pick add sub neg mul div "
    "sum_rows stack".split()
)

Memo = dict[object, torch.Tensor]  # by value; the results of a kernel's call by (value, index)


def evaluate(
    op: Op, tensors: dict[str, torch.Tensor], kernels: Mapping[str, Callable] | None = None
) -> dict[str, torch.Tensor]:
    """Global float64 results, and what the call leaves in parameters that it updates. `tensors`: global parameters; of
    one that is declared Partial, the sum of its addends. `kernels`: functions of the op's calls of users' kernels, by
    item."""
    memo: Memo = {p.value: tensors[p.name].double() for p in op.params}
    return {name: _value(v, memo, kernels or {}) for name, v in (*op.results, *op.updates)}


def is_linear(op: Op) -> bool:
    """Only products, sums and differences (and products with numbers): exact on small integers."""
    return all(_linear(v, set()) for _, v in (*op.results, *op.updates))


def _linear(value: Value, seen: set[Value]) -> bool:
    if value in seen:
        return True
    seen.add(value)
    if value.kind not in LINEAR or (value.kind in ("mul", "div") and not _exact_factor(value)):
        return False
    return all(_linear(a, seen) for a in value.args)


def _exact_factor(value: Value) -> bool:
    """Scaling by a power of two loses no bit of a small integer; a third does."""
    numbers = [a.attrs["number"] for a in value.args if a.kind == "const"]
    if not numbers or (value.kind == "div" and value.args[1].kind != "const"):
        return False
    return all(n != 0 and math.frexp(abs(n))[0] == 0.5 for n in numbers)


def _value(v: Value, memo: Memo, kernels: Mapping[str, Callable]) -> torch.Tensor:
    if v.kind == "output":
        _value(v.args[0], memo, kernels)
        return memo[v.args[0], v.attrs["index"]]
    if v not in memo:
        args = [_value(a, memo, kernels) for a in v.args]
        if v.kind == "kernel":
            made = kernels[v.attrs["item"]](v, args)
            memo.update({(v, i): m for i, m in enumerate(made)})
        memo[v] = made[0] if v.kind == "kernel" else _apply(v, args)
    return memo[v]


def _apply(v: Value, args: list[torch.Tensor]) -> torch.Tensor:
    match v.kind:
        case "const":
            return torch.tensor(float(v.attrs["number"]), dtype=torch.float64)
        case "all_gather" | "reduce_scatter" | "all_reduce" | "all_to_all" | "cast":
            return args[0]  # of the whole tensor; a pending sum is already its total
        case "matmul":
            return args[0] @ args[1]
        case "transpose":
            return args[0].transpose(-1, -2)
        case "pick":
            return args[0][int(v.attrs["index"])]
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1]
        case "div":
            return args[0] / args[1]
        case "neg":
            return -args[0]
        case "gelu":
            return torch.nn.functional.gelu(args[0])
        case "relu":
            return torch.relu(args[0])
        case "silu":
            return torch.nn.functional.silu(args[0])
        case "tanh":
            return torch.tanh(args[0])
        case "rms_norm":
            square = args[0].square().mean(-1, keepdim=True)
            return args[0] * torch.rsqrt(square + float(v.attrs["eps"])) * args[1]
        case "rms_norm_grad":
            return _norm_slope(*args, float(v.attrs["eps"]))
        case "gelu_grad" | "relu_grad" | "silu_grad" | "tanh_grad":
            return _slope(v.kind.removesuffix("_grad"), args[0])
        case "sum_rows":
            return args[0].sum(0)
        case "stack":
            return torch.stack(args)
        case "swiglu":
            return torch.nn.functional.silu(args[0]) * args[1]
    raise ValueError(f"no reference for {v.kind}")


def _slope(function: str, x: torch.Tensor) -> torch.Tensor:
    """The derivative by torch's own rule, so that ours is compared with another one."""
    f = {"gelu": torch.nn.functional.gelu, "relu": torch.relu, "silu": torch.nn.functional.silu, "tanh": torch.tanh}
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(f[function](at).sum(), at)
    return slope


def _norm_slope(x: torch.Tensor, d: torch.Tensor, eps: float) -> torch.Tensor:
    """The same for the cotangent through a norm of rows."""
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        y = at * torch.rsqrt(at.square().mean(-1, keepdim=True) + eps)
        (slope,) = torch.autograd.grad(y, at, d)
    return slope
