"""What is known of calls that came before, and whether one is like the last of them. Copied into the module.

Of most calls of a program the tensors are of the same kinds as those of the call before. That is asked in one step, by
what torch's compiler asks ahead of code that it has compiled: classes, dtypes, devices, sizes, strides, and how the
dispatcher would take such tensors here and now, which autocast, transforms and tracers change. What it does not see
(`unobserved` in dispatch.py has the list) is asked beside it. Source: torch/csrc/dynamo/guards.h, TensorCheck.
"""

from __future__ import annotations

import torch


def fit_for(tensors):
    """A function of tensors that says whether they are of the kinds of these; TypeError for another number. None
    where torch has no such thing."""
    try:
        # Without these two keywords some versions of torch end the process.
        guards = torch._C._dynamo.guards.TensorGuards
        return guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    except (AttributeError, TypeError):
        return None


class Known:
    """A way that calls go: `run`, a function of their tensors alone. And what the last of them was like: sizes that it
    was given, whether it has tensors with gradients (`graded`: then another like it is one only where none is wanted),
    whether it was captured (None where that makes no difference)."""

    __slots__ = ("captured", "fits", "graded", "run", "sizes")

    def __init__(self, run):
        self.run, self.fits = run, None

    def learn(self, tensors, sizes):
        """The last call had these; its sizes are those of all that go this way."""
        if self.fits is None or not self.fits(*tensors):
            self.fits, self.sizes = fit_for(tensors), sizes
            self.graded = any(t.requires_grad for t in tensors)
