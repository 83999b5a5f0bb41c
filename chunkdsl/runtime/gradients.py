"""Backward passes: what autograd keeps from the op that ran forward, which op it calls, and how calls go under the
transforms of torch.func. Copied into the module.

An operator that is registered from Python takes no part in those transforms, an autograd.Function does; so a call under
one of them is a `Call`. Gradients have no gradient: that is an error where one is asked for.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from chunkdsl.runtime.live import Live


def transformed():
    """Does a transform of torch.func that has to do with gradients or batches look on, or differentiation in forward
    mode? Not in a traced call: a tracer makes its own of them."""
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    inner = functorch.peek_interpreter_stack()
    apart = inner is None or inner.key() == functorch.TransformType.Functionalize
    return not apart or forward_ad._current_level >= 0


def results_of(made):
    """What an op gives as a tuple: one with a single result gives that itself."""
    return made if isinstance(made, tuple) else (made,)


def bare(tensor):
    """What is inside a transform's wrappers, whose class is Tensor whatever they hold."""
    while not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def no_gradient(name):
    return RuntimeError(f"{name} has no gradient: run it under torch.no_grad(), or detach its inputs")


def not_in_place(operation, where):
    return RuntimeError(f"{operation.NAME} changes {', '.join(operation.INOUT)} in place: not under {where}")


class Saved:
    """The two functions that torch.library.register_autograd takes, for a class with a backward op."""

    def __init__(self, cls):
        self.count = len(cls.PARAMETERS)
        self.backward_op, self.wanted = cls.BACKWARD

    def keep(self, ctx, inputs, output):
        outputs = results_of(output)
        places = {"input": inputs, "output": outputs}
        ctx.save_for_backward(*(places[kind][i] for kind, i in self.wanted if kind != "gradient"))
        ctx.number, ctx.sizes = inputs[self.count], inputs[self.count + 1 :]
        ctx.shapes = [(o.shape, o.dtype, o.device) for o in outputs]
        if not torch.compiler.is_compiling():  # tracers know no such method
            ctx.set_materialize_grads(False)  # else results kept for the backward pass would get gradients of zeros

    def run(self, context, *gradients):
        operation = Live.find(context.number).partner(self.backward_op)
        made = operation.operator(*self.arguments(context, gradients), operation.number, *context.sizes)
        return (*results_of(made), None, *(None for _ in context.sizes))

    def arguments(self, context, gradients):
        saved, given = iter(context.saved_tensors), []
        for kind, i in self.wanted:
            if kind != "gradient":
                given.append(next(saved))
            elif gradients[i] is None:  # of several results one that the loss does not use
                shape, dtype, device = context.shapes[i]
                given.append(torch.zeros(shape, dtype=dtype, device=device))
            else:
                given.append(gradients[i].contiguous())
        return given


def one_by_one(info, in_dims, call, args):
    """What torch.vmap makes of a call: one for each element of the batch, in order, on every rank."""
    if info.batch_size == 0:
        raise RuntimeError("torch.vmap over a batch of no elements: an op has no call to make")
    made = []
    for i in range(info.batch_size):
        made.append(call(*(a.select(d, i) if isinstance(d, int) else a for a, d in zip(args, in_dims, strict=True))))
    if not isinstance(made[0], tuple):
        return torch.stack(made), 0
    stacked = [None if parts[0] is None else torch.stack(parts) for parts in zip(*made, strict=True)]
    return tuple(stacked), tuple(None if s is None else 0 for s in stacked)


def by_operator(operation, tensors, sizes):
    return operation.operator(*tensors, operation.number, *(sizes.get(name) for name in operation.RANGES))


def by_fallback(operation, tensors, sizes):
    return tuple(operation.plain_call(tensors, sizes))


class Call(torch.autograd.Function):
    """A call of `operation` in one of the two ways above: by the fallback where a gradient is wanted, float64 included,
    and in either way where a transform looks on. The backward op is called in the same way."""

    @staticmethod
    def forward(way, operation, sizes, *tensors):
        return way(operation, tensors, sizes)

    @staticmethod
    def setup_context(context, inputs, output):
        context.way, operation, given, *tensors = inputs
        context.name, context.number = operation.NAME, operation.number
        if operation.BACKWARD:
            Saved(type(operation)).keep(context, (*tensors, operation.number), output)
        context.sizes = given

    @staticmethod
    def backward(context, *gradients):
        operation = Live.find(context.number)
        if not operation.BACKWARD:
            raise no_gradient(context.name)
        saved = Saved(type(operation))
        backward, given = operation.partner(saved.backward_op), saved.arguments(context, gradients)
        again = torch.is_grad_enabled() or transformed()
        made = (Call.apply if again else Call.forward)(context.way, backward, context.sizes, *given)
        return (None, None, None, *results_of(made))

    @staticmethod
    def jvp(context, *tangents):
        raise RuntimeError(f"{context.name} has no derivative in forward mode: use torch.func.vjp or grad")

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(info, in_dims, Call.apply, args)


class Ungraded(torch.autograd.Function):
    """Results of an op that updates in place, whose operator cannot hold an error of its own: a gradient that is asked
    for through them is one, and not left out."""

    @staticmethod
    def forward(context, name, results, *tensors):
        context.name = name
        return tensors[:results]

    @staticmethod
    def backward(context, *gradients):
        raise no_gradient(context.name)
