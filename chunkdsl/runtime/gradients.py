"""Backward passes: what autograd keeps from the op that ran forward, and which op it calls. Copied into the module."""

from __future__ import annotations

import torch

from chunkdsl.runtime.live import Live


class Saved:
    """The two functions that torch.library.register_autograd takes, for a class with a backward op."""

    def __init__(self, cls):
        self.count = len(cls.PARAMETERS)
        self.backward_op, self.wanted = cls.BACKWARD

    def keep(self, ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        places = {"input": inputs, "output": outputs}
        ctx.save_for_backward(*(places[kind][i] for kind, i in self.wanted if kind != "gradient"))
        ctx.number, ctx.sizes = inputs[self.count], inputs[self.count + 1 :]

    def run(self, context, *gradients):
        operation = Live.find(context.number).partner(self.backward_op)
        results = operation.operator(*self.arguments(context, gradients), operation.number, *context.sizes)
        results = results if isinstance(results, tuple) else (results,)
        return (*results, None, *(None for _ in context.sizes))

    def arguments(self, context, gradients):
        saved = iter(context.saved_tensors)
        return [gradients[i].contiguous() if kind == "gradient" else next(saved) for kind, i in self.wanted]


class FallbackGradient(torch.autograd.Function):
    """The fallback with the backward op's fallback as its gradient; takes float64, for gradcheck."""

    @staticmethod
    def forward(context, operation, given, *tensors):
        made = operation.plain_call(tensors, given)
        Saved(type(operation)).keep(context, (*tensors, operation.number), tuple(made))
        context.given = given
        return tuple(made)

    @staticmethod
    def backward(context, *gradients):
        operation = Live.find(context.number)
        saved = Saved(type(operation))
        made = operation.partner(saved.backward_op).plain_call(saved.arguments(context, gradients), context.given)
        return (None, None, *made)
