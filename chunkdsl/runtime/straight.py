"""Calls of known sizes below a closed gate: all that the host does for one beside the library's own calls. Copied into
the module.

An op whose fallback is one collective, alone or beside one product, says so in STRAIGHT. Such a call is put together
once for its sizes, and then runs past what `plain` looks at and past torch's dispatcher for collectives.
"""

from __future__ import annotations

import torch

from chunkdsl.runtime.apart import keep_apart
from chunkdsl.runtime.dispatch import say_changed
from chunkdsl.runtime.plain import own_memory


class StraightCalls:
    """What `GatedCalls` needs of it. STRAIGHT: the steps of `plain` in order, of gather, scatter, total, linear
    (x @ w.T) and mm (x @ w), where it is no more than that on dtypes that are all equal; else ()."""

    STRAIGHT, INOUT = (), ()

    def straight_call(self, dims, tensors):
        """A function of the tensors of calls like this one. It takes as little of the host's time as it can: the
        library's part of such a call is all that it has to gain."""
        way = self.steps_of(dims, tensors) or (lambda *given: self.whole_plain(dims, given))
        machine, verdict = self.machine, self.verdict
        if self.INOUT or len(self.PARAMETERS) != 2:

            def run(*given):
                if machine.failure or verdict.value:
                    self.check()
                if self.INOUT:
                    keep_apart(self, given)  # a wrong call of this rank, before it leaves its peers waiting
                try:
                    result = way(*given)
                except (Exception, KeyboardInterrupt) as error:
                    self.leave_peers(error)
                    raise
                if self.INOUT:
                    say_changed(self, given)
                return result

            return run

        def run_two(a, b):  # the same of two tensors, which are not packed and unpacked
            if machine.failure or verdict.value:
                self.check()
            try:
                return way(a, b)
            except (Exception, KeyboardInterrupt) as error:
                self.leave_peers(error)
                raise

        return run_two

    def steps_of(self, dims, tensors):
        """`plain` for these sizes as a function of tensors as declared; None where it is not made of steps, or cuts
        unequally."""
        step = getattr(self.machine, "straight_step", None)
        if step is None or not self.STRAIGHT:
            return None
        (shape, _), *_ = self.result_shapes(tensors, dims)
        rows, products = tensors[0].shape[0], {"linear": torch.nn.functional.linear, "mm": torch.mm}
        first, last = self.STRAIGHT[0], self.STRAIGHT[-1]
        if first == "gather":
            whole = (self.world * rows, *tensors[0].shape[1:])
            return step(first, whole, products[last]) if shape[0] == whole[0] else None
        if last == "scatter" and shape[0] * self.world != rows:
            return None
        return step(last, shape, products.get(first))

    def whole_plain(self, dims, tensors):
        """The results of `plain`, whatever it is."""
        values = self.plain(dims, *tensors)
        return own_memory(values[0]) if len(values) == 1 else tuple(map(own_memory, values))
