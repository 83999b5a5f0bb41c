"""Policies of a derived backward pass: those of the forward pass by pairing, then those of the `gradient` item over
them. Judges nothing: what does not go together is found where the derived op is scheduled.

A derived collective moves the same rows the other way. How finely they are cut, along which route, by how many
communication programs and above which gate is as good for it as for its pair; which side issues a transfer, in which
order tiles run and what adds or cannot add is not, and is left to `auto`.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Value
from chunkdsl.ir.policy import ChunkRows, Policy
from chunkdsl.ir.types import SymSize, TensorType
from chunkdsl.lower.expressions import File
from chunkdsl.lower.policies import Scope
from chunkdsl.syntax import nodes

GATED = ("fuse", "fuse_from", "eager_from", "fallback")
CARRIED = {
    "matmul": ("tile", "stages", "warps", "compute", *GATED),
    "all_gather": ("chunk", "route", "via", "place", "buffers", *GATED),
    "reduce_scatter": ("chunk", "route", "via", "place", "buffers", *GATED),
    "all_to_all": ("chunk", "route", "buffers", *GATED),
}
BUILT_IN = ("direct", "swizzle", "ring")


def paired_policy(forward: Value, kind: str) -> Policy:
    """What the policy of `forward` says about the derived value of this kind that takes its place backward."""
    policy = forward.policy
    if forward.kind == kind == "all_reduce":
        return ordinary(policy)
    keys = [k for k in CARRIED.get(kind, GATED) if getattr(policy, k) is not None]
    kept = {k: getattr(policy, k) for k in keys if _serves(k, policy, kind)}
    if kept.get("buffers") in (2, 3) and kind != "reduce_scatter" and "via" not in kept and kept.get("route") != "ring":
        del kept["buffers"]  # `auto` becomes a copy engine, whose addresses are fixed
    return Policy(**kept, spans={k: s for k, s in policy.spans.items() if k in kept})


def paired_product(forward: Value, over_rows: bool) -> Policy:
    """The same of a derived product. One over rows, `a.T @ b`, is none that the library computes, and `auto` then."""
    policy = paired_policy(forward, "matmul")
    return replace(policy, compute=None) if over_rows and policy.compute == "library" else policy


def ordinary(policy: Policy) -> Policy:
    """A policy without what only a small all-reduce has: in a backward pass its sum stands beside other things."""
    dropped = dict(validity=None, assume=None, retry=None)
    if policy.buffers == 3:
        dropped |= dict(buffers=None)
    if policy.via == "multimem":
        dropped |= dict(via=None)
    return replace(policy, **dropped)


def _serves(key: str, policy: Policy, kind: str) -> bool:
    value = getattr(policy, key)
    match key:
        case "route":
            tiers = value.startswith("hierarchical(") and kind != "all_to_all"
            return tiers or (value in BUILT_IN and (value != "ring" or kind != "all_to_all"))
        case "via":
            adds_tiers = kind == "reduce_scatter" and (policy.route or "").startswith("hierarchical(")
            return value == "ldst" or (value == "tma" and not adds_tiers)
        case "place":
            return value.kind == "own_sms"
        case "buffers":
            return value < 3
    return True


class GradientPolicy:
    """What `gradient ... with` says, over inherited policies. None of it where there is no `with`."""

    def __init__(self, use: nodes.PolicyUse | None, file: File) -> None:
        self.use, self.file = use, file
        settings = file.policies.resolve(use)
        self.sound = settings is not None
        self.scope = None if use is None or settings is None else Scope(settings, use.span, "this gradient")

    def over(self, inherited: Policy, kind: str, type: TensorType, moved: SymSize | None) -> Policy:
        """The policy of a derived value. `moved`: size of the dimension that a collective moves."""
        if self.scope is None:
            return inherited
        chunk = self.scope.settings.get("chunk")
        named = chunk.value.dim if chunk is not None and isinstance(chunk.value, ChunkRows) else None
        names = [name for size in type.shape for name in self._names(size)]
        fits = self._names(moved) if moved is not None else []
        along = named if named in fits else next(iter(fits), None)
        own = self.file.policies.policy_of(kind, along, names, [self.scope])
        if own.route or own.via or own.side or own.place:  # a transport is taken whole
            inherited = replace(inherited, route=None, via=None, side=None, place=None)
        return own.over(inherited)

    def _names(self, size: SymSize) -> list[str]:
        """Dims of this size: derived values have sizes, not names."""
        dims = self.file.dims
        return [name for name in (*dims.ranges, *dims.constants) if dims.get(name) == size]

    def close(self) -> bool:
        """Report each key that fitted nothing; True if all did."""
        return self.sound and (self.scope is None or self.file.policies.close(self.scope))
