"""Every op of a module as a torch operator: what torch.compile, autograd, autocast, flop counters and checkpointing
policies see. Copied into the module.

An operator takes the local tensors, the number of the instance that it runs on, and the run-time sizes. It is opaque: a
graph holds one node for a call, and torch neither looks into it nor computes it again unasked.
"""

from __future__ import annotations

import itertools

import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from chunkdsl.runtime.gradients import Saved, Ungraded, no_gradient, not_in_place, one_by_one, results_of, transformed
from chunkdsl.runtime.live import Live


def register_operators(name, operations):
    """Define `operations` (classes of a module) as `torch.ops.NAME.OP` and `OP_into`, and set their `operator` and
    `operator_into`. A module that is loaded again gets NAME_2. Source of the protocol: torch.library."""
    library = new_library(name)
    for cls in operations:
        cls.library = library  # registrations live as long as this object
        handle = free_name("instance", {*cls.PARAMETERS, *cls.RESULTS, *cls.RANGES})
        marks = {p: f"(i{i}!)" for i, p in enumerate(cls.INOUT)}
        tensors = [f"Tensor{marks.get(p, '')} {p}" for p in cls.PARAMETERS]
        rest = [f"int {handle}", *(f"SymInt? {d}=None" for d in cls.RANGES)]
        outs = [f"Tensor(o{i}!) {free_name(r, cls.PARAMETERS)}" for i, r in enumerate(cls.RESULTS)]
        given = ", ".join("Tensor" for _ in cls.RESULTS)
        library.define(f"{cls.NAME}({', '.join(tensors + rest)}) -> {given if len(cls.RESULTS) == 1 else f'({given})'}")
        library.define(f"{cls.NAME}_into({', '.join(tensors + outs + rest)}) -> ()")
        operators = getattr(torch.ops, library.ns)
        packet = getattr(operators, cls.NAME)
        cls.operator, cls.operator_into = packet.default, getattr(operators, f"{cls.NAME}_into").default
        define(cls, library, packet)


def new_library(name):
    """A torch library that nobody has: NAME, or NAME_2, ... for a module that is loaded again."""
    for again in itertools.count(1):
        try:
            return torch.library.Library(name if again == 1 else f"{name}_{again}", "DEF")
        except RuntimeError:  # the namespace is taken
            if again > 9999:
                raise


def free_name(name, taken):
    while name in taken:
        name += "_"
    return name


def define(cls, library, packet):
    """Kernels of an operator for every dispatch key that it serves."""
    count, sizes, results = len(cls.PARAMETERS), tuple(cls.RANGES), len(cls.RESULTS)

    def unpack(args, between=0):
        tensors, outs = args[:count], args[count : count + between]
        number, *given = args[count + between :]
        return Live.find(number), tensors, outs, {n: v for n, v in zip(sizes, given, strict=False) if v is not None}

    def run(*args):
        operation, tensors, _, given = unpack(args)
        return operation.call(tensors, given, None)

    def run_into(*args):
        operation, tensors, outs, given = unpack(args, results)
        operation.call(tensors, given, outs)

    def fake(*args):
        operation, tensors, _, given = unpack(args)
        made = tuple(tensors[0].new_empty(s, dtype=d) for s, d in operation.result_shapes(tensors, given))
        return made[0] if results == 1 else made

    def backward(context, *gradients):
        raise no_gradient(cls.NAME)

    def batched(info, in_dims, *args):
        if cls.INOUT:
            raise not_in_place(cls, "torch.vmap")
        return one_by_one(info, in_dims, cls.operator, args)

    def flops(*args, out_shape=None, **kwargs):
        operation, shapes, _, given = unpack((*args, *kwargs.values()))
        return operation.flops(operation.sizes_of(shapes, given))

    for key in ("CPU", "CUDA"):
        library.impl(cls.NAME, run, key)
        library.impl(f"{cls.NAME}_into", run_into, key)
        library.impl(cls.NAME, cast_to_declared(cls, key.lower()), f"Autocast{key}")
    torch.library.register_fake(f"{library.ns}::{cls.NAME}", fake, lib=library)
    torch.library.register_fake(f"{library.ns}::{cls.NAME}_into", lambda *args: None, lib=library)
    torch.library.register_vmap(f"{library.ns}::{cls.NAME}", batched, lib=library)
    if cls.BACKWARD:
        saved = Saved(cls)
        name = f"{library.ns}::{cls.NAME}"
        torch.library.register_autograd(name, saved.run, setup_context=saved.keep, lib=library)
    elif not cls.INOUT:  # an operator that changes its inputs has no place for an error of its own
        torch.library.register_autograd(f"{library.ns}::{cls.NAME}", backward, lib=library)
    register_flop_formula(packet)(flops)


def cast_to_declared(cls, device):
    """The operator under autocast, where it takes what `as_declared` does."""

    def run(*args):
        tensors = as_declared(cls, args)
        with torch.autocast(device, enabled=False):
            return cls.operator(*tensors, *args[len(tensors) :])

    return run


def as_declared(operation, args):
    """Under autocast an op takes floating tensors of any dtype, as torch's own products do: each is cast to the dtype
    that the spec declares, but for one that is updated in place: of a copy nobody would see it."""
    declared = [(dtype, name in operation.INOUT) for name, (dtype, _) in operation.PARAMETERS.items()]
    return [
        t.to(d) if t.is_floating_point() and d.is_floating_point and not updated else t
        for t, (d, updated) in zip(args, declared, strict=False)
    ]


# Looked up once, as they are asked at every call.
is_profiled = torch.autograd._profiler_enabled
is_cast = torch._C._is_any_autocast_enabled
is_traced = torch._C._get_tracing_state
modes_here = torch._C._len_torch_dispatch_stack
function_modes_here = torch._C._len_torch_function_stack
transform_here = torch._C._functorch.peek_interpreter_stack
wants_gradients = torch.is_grad_enabled
PLAIN_KINDS = (torch.Tensor, torch.nn.Parameter)


def unobserved(tensors):
    """Does nobody but the caller see this call? No tracer, mode, transform, profiler or autocast, no gradient, and
    tensors of no other class. Then it goes past torch's dispatcher, which costs the host more than most launches."""
    if is_profiled() or is_cast() or is_traced() is not None or modes_here() or function_modes_here():
        return False
    if transform_here() is not None or forward_ad._current_level >= 0:
        return False
    gradients = wants_gradients()
    for t in tensors:
        if type(t) not in PLAIN_KINDS or (gradients and t.requires_grad):
            return False
    return True


def say_changed(operation, tensors):
    """Tell autograd what a call past the dispatcher changed in place: an earlier operation may have saved it."""
    changed = [t for name, t in zip(operation.PARAMETERS, tensors, strict=True) if name in operation.INOUT]
    torch.autograd.graph.increment_version(changed)


def updating(operation, way, tensors, sizes):
    """A call that updates tensors in place: autograd is told, and finds no gradient of the results."""
    if torch.compiler.is_compiling():
        return way(operation, tensors, sizes)
    if transformed():
        raise not_in_place(operation, "transforms of torch.func or forward mode")
    with torch.no_grad():
        made = way(operation, tensors, sizes)
    say_changed(operation, tensors)
    if not operation.differentiated(tensors):
        return made
    results = results_of(made)
    return operation.first(Ungraded.apply(operation.NAME, len(results), *results, *tensors))
