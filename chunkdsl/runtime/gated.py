"""The gate of an op: which calls run fused, and what the others do. Copied into the module.

Two thresholds: a call that a CUDA graph captures has no cost but the device's, any other one also that of the host, so
each has its own. Both follow from global sizes, the number of ranks and whether the caller's stream is capturing, and
never from what one rank sees alone: ranks must agree on whether they capture a call, as they must on its sizes.
"""

from __future__ import annotations

import warnings

from chunkdsl.runtime.failures import Failures
from chunkdsl.runtime.straight import StraightCalls


class GatedCalls(StraightCalls, Failures):
    """GATES, EAGER_GATES: (ranks, dim, least size of it) from how many ranks on which gate holds; no dim: always, or
    never where the size is None. EAGER_GATES: of calls outside of CUDA graphs; (): the same."""

    GATES, EAGER_GATES, FALLBACK = ((1, "", 0),), (), "nccl"
    said, MOST_NOTED = False, 256
    BODIES = False  # whether users' kernels compute in it, which take tensors as they were written for

    def set_gates(self, ranks):
        # By keys of calls (`key_of`): the sizes of a fallback; why the gate sends one the unfused way, and its sizes.
        # Of `straight` a function of the tensors: calls whose gate sends them to the library, as often as they come.
        self.bound, self.below, self.straight = {}, {}, {}
        self.gate = self.gate_for(self.GATES, ranks)
        self.eager_gate = self.gate_for(self.EAGER_GATES or self.GATES, ranks)

    @staticmethod
    def gate_for(gates, ranks):
        return next(((dim, n) for least, dim, n in reversed(gates) if ranks.reaches(least)), ("", 0))

    def gate_here(self):
        """The gate of a call on the current stream."""
        gate = self.gate
        return gate if gate == self.eager_gate or self.machine.capturing() else self.eager_gate

    def unfused(self, dims):
        """Why this call does not run fused, or None. Depends on global sizes, the vote and whether the stream is
        capturing alone."""
        if self.why_not is not None:
            return self.why_not
        dim, least = gate = self.gate_here()
        key = "fuse_from" if gate == self.gate else "eager_from"
        if least is None:
            return f"{key} = never on {self.world} ranks"
        return f"{key} = {least} along {dim} on {self.world} ranks" if dim and dims[dim] < least else None

    def note(self, table, key, found):
        """Calls of this key need no second look at their arguments."""
        if key is not None and len(table) < self.MOST_NOTED:
            table[key] = found

    def plain_call(self, tensors, given):
        """The results of the fallback, all of them, as a sequence."""
        if self.closed_because or self.machine.failure:
            self.check()
        key = self.key_of(tensors, given)
        if self.BODIES and key is not None and not self.as_noted(tensors):
            key = None
        dims = self.bound.get(key)
        if dims is None:
            self.count(tensors, given)
            tensors, dims = self.agreed(tensors, given, strict=False)
            self.note(self.bound, key, dims)
        return self.run_plain(dims, tensors)

    def run_unfused(self, reason, dims, tensors, out=None):
        """The results of a call that does not run fused."""
        if self.why_not is not None:
            self.say_unfused(reason)
        elif self.FALLBACK == "exact":
            values = self.results(dims, out)
            self.run_exact(dims, tensors, values)
            return self.first(values)
        values = self.run_plain(dims, tensors)
        if out is not None:
            values = [o.copy_(value) for o, value in zip(out, values, strict=False)]
        return self.first(values)

    def say_unfused(self, reason):
        """Once, that the op cannot run fused. RuntimeError where the spec has nothing else."""
        if self.FALLBACK == "none":
            raise RuntimeError(f"{self.NAME} cannot run fused: {reason}; the spec says fallback = none")
        if not self.said:
            self.said = True
            warnings.warn(f"{self.NAME} runs its fallback: {reason}", RuntimeWarning, stacklevel=4)
