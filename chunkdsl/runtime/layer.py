"""An op as a layer: its weights are parameters of a torch.nn.Module, sharded as the spec says. Copied into the module.

Parameters are DTensors, so that torch.distributed.checkpoint saves them once and loads them on any number of ranks, and
fully_shard cuts them along another mesh axis.
"""

from __future__ import annotations

import copy
import warnings

import torch


def is_placed(value):
    """Is it a DTensor? A tracer says of any tensor that it may have attributes, so its type comes first."""
    return type(value) not in (torch.Tensor, torch.nn.Parameter) and hasattr(value, "device_mesh")


def local_of(value, back):
    """This rank's shard of a DTensor. `back`: placements of the gradient that it gets; where each rank has an addend of
    it the backward pass adds them up, so that it ends placed as the tensor is."""
    if back is None:
        return value.to_local()
    if any(b.is_partial() for b in back):
        value = value.redistribute(placements=value.placements)
    return value.to_local(grad_placements=back)


def take_gradients_in(parameter, dtype, name):
    """Let `.grad` of a leaf of halves be wider. Where torch has no such thing (before 2.10) it stays as it is, and a
    RuntimeWarning says so."""
    if hasattr(parameter, "grad_dtype"):
        parameter.grad_dtype = dtype
    else:
        said = f"gradients of {name} are rounded to {parameter.dtype}: torch {torch.__version__} has no grad_dtype"
        warnings.warn(f"{said}; make the layer with dtype={dtype}", RuntimeWarning, stacklevel=3)


class LayerCall(torch.autograd.Function):
    """An op with the parameters of a layer as they are: DTensors or shards, in the op's dtype or a wider one. Each gets
    its gradient at once: between the op and a parameter autograd has no tensor whose dtype it would round to."""

    @staticmethod
    def forward(context, layer, sizes, *held):
        operation, names = layer.operation, layer.operation.PARAMETERS
        forward = operation.partner(operation.FORWARD)
        wanted = type(forward).BACKWARD[1]
        given = map(layer.declared, names, held)
        made = forward.operator(*given, forward.number, *sizes)
        places = {"input": held, "output": made if isinstance(made, tuple) else (made,)}
        context.save_for_backward(*(places[kind][i] for kind, i in wanted if kind != "gradient"))
        context.layer, context.sizes, context.placed = layer, sizes, [is_placed(t) for t in held]
        return operation.first(made)

    @staticmethod
    def backward(context, *gradients):
        layer, names = context.layer, list(context.layer.operation.PARAMETERS)
        forward = layer.operation.partner(layer.operation.FORWARD)
        name, wanted = type(forward).BACKWARD
        saved, given = iter(context.saved_tensors), []
        for kind, i in wanted:
            tensor = gradients[i].contiguous() if kind == "gradient" else next(saved)
            given.append(layer.declared(names[i], tensor) if kind == "input" else tensor)
        backward = forward.partner(name)
        made = backward.operator(*given, backward.number, *context.sizes)
        made = made if isinstance(made, tuple) else (made,)
        ends = zip(names, made, context.placed, context.needs_input_grad[2:], strict=True)
        return None, None, *(layer.summed(n, g, placed) if needed else None for n, g, placed, needed in ends)


class OpLayer(torch.nn.Module):
    """`operation` with some of its tensors as parameters: `layer(x)` for an op (x, w1, b1, w2) with three weights.

    Values are drawn as whole tensors from `seed`, normal with deviation `std` (vectors are 0), then cut: the same on
    any number of ranks. Parameters have the dtypes that the spec declares, or all have `dtype`, from which a call
    rounds. ValueError for a name that the op has not, for one whose shape holds a run-time size, and for one with a
    layout that no DTensor has.

    On a mesh of two axes a weight is on the part of the mesh that cuts it (on the op's own axes where none does). Of a
    gradient that is Partial there the sum is taken; the sum over the other axis is the caller's: fully_shard,
    DistributedDataParallel, or an all_reduce of `p.grad.to_local()`. `local`: parameters are this rank's shards as
    ordinary tensors, not DTensors.
    """

    def __init__(self, operation, weights, seed=0, std=0.02, dtype=None, local=False):
        super().__init__()
        self.operation = operation
        self.weights = tuple(weights)
        unknown = [name for name in self.weights if name not in operation.PARAMETERS]
        if unknown:
            known = ", ".join(operation.PARAMETERS)
            raise ValueError(f"{operation.NAME} has no tensor {', '.join(unknown)}; it has {known}")
        draw = torch.Generator().manual_seed(seed)
        self.grids = {name: self.grid_of(name) for name in self.weights}
        self.parts = {name: self.part_of(name) for name in self.weights}
        for name in self.weights:
            declared, shape = operation.PARAMETERS[name]
            sizes = [extent[0] for extent in shape]
            if not all(isinstance(size, int) for size in sizes):
                raise ValueError(f"{operation.NAME}: {name} has a run-time size, so it is no weight")
            if any(isinstance(extent[1], tuple) for extent in shape):
                raise ValueError(f"{operation.NAME}: no DTensor has the layout of {name}: keep it as a tensor")
            whole = torch.zeros(sizes) if len(sizes) < 2 else torch.randn(sizes, generator=draw) * std
            held = self.shard(name, whole.to(dtype or declared)).to(operation.machine.device, copy=True)  # no view
            self.register_parameter(name, torch.nn.Parameter(held if local else self.placed(name, held)))
        self.widen()
        self.register_load_state_dict_post_hook(OpLayer.widen)

    def widen(self, *_):
        """Where the op gives a gradient in f32, a parameter of halves takes it so."""
        for name, dtype in self.operation.gradient_dtypes().items():
            if name in self.weights and getattr(self, name).dtype.itemsize < dtype.itemsize:
                take_gradients_in(getattr(self, name), dtype, name)

    def _apply(self, *given, **named):
        """Conversions to a device or dtype may make parameters anew."""
        made = super()._apply(*given, **named)
        self.widen()
        return made

    def __deepcopy__(self, memo):
        """Another layer of the same op: its weights are copies, the instance is one. Gradients are copied apart: a
        copied parameter takes one of a wider dtype only once it has been told."""
        made = memo[id(self)] = type(self).__new__(type(self))
        memo |= {id(shared): shared for shared in (self.operation, self.parts)}
        gradients = {name: getattr(self, name).grad for name in self.weights}
        try:
            for name in self.weights:
                getattr(self, name).grad = None
            made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in vars(self).items()})
        finally:
            for name, gradient in gradients.items():
                getattr(self, name).grad = gradient
        made.widen()
        for name, gradient in gradients.items():
            getattr(made, name).grad = None if gradient is None else gradient.detach().clone()
        return made

    def axes_of(self, name):
        """Indices of the mesh axes whose ranks hold a weight together."""
        declared, operation = self.operation.placements[name], self.operation
        axes = operation.module.AXES or ("",)
        cut = [i for i, p in enumerate(declared) if p.is_shard()]
        return cut or [i for i, axis in enumerate(axes) if not operation.OVER or axis in operation.OVER]

    def grid_of(self, name):
        """(dimension, ranks, this rank's index) of each cut of a weight, in their order."""
        declared, operation = self.operation.placements[name], self.operation
        here, axes = operation.here, operation.module.AXES
        found = []
        for i in self.axes_of(name):
            if declared[i].is_shard():
                at = (here[axes[i]], here[f"{axes[i]}.rank"]) if here else (operation.world, operation.rank)
                found.append((declared[i].dim, *at))
        return found

    def part_of(self, name):
        """Where a weight lies: (DeviceMesh, its placements there, those of its gradient). No mesh without a process
        group."""
        operation, axes = self.operation, self.axes_of(name)
        mesh = operation.module.mesh
        held = operation.placements[name]
        back = operation.gradient_placements().get(name, held)
        if mesh is not None and len(axes) < mesh.ndim:
            from torch.distributed.device_mesh import DeviceMesh

            names = mesh.mesh_dim_names
            mesh = mesh[names[axes[0]]] if names else DeviceMesh.from_group(mesh.get_group(axes[0]), mesh.device_type)
        return mesh, tuple(held[i] for i in axes), tuple(back[i] for i in axes)

    def placed(self, name, local, placements=None):
        """A shard as the DTensor that it is part of; itself where there is no process group."""
        from torch.distributed.tensor import DTensor

        mesh, held, _ = self.parts[name]
        if mesh is None:
            return local
        shape = torch.Size(extent[0] for extent in self.operation.PARAMETERS[name][1])
        strides = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(local, mesh, placements or held, run_check=False, shape=shape, stride=strides)

    def forward(self, *inputs, **sizes):
        """The op's result. `inputs`: its other tensors, in the spec's order, local ones or DTensors; `sizes`: run-time
        sizes."""
        if torch.is_autocast_enabled(self.operation.machine.device.type):
            inputs = self.cast(inputs)
        names, operation = list(self.operation.PARAMETERS), self.operation
        left = [name for name in names if name not in self.weights]
        if len(inputs) != len(left):
            wanted = f"{len(left)} tensors ({', '.join(left)})"
            raise TypeError(f"{operation.NAME} as a layer takes {wanted}, not {len(inputs)}")
        given = dict(zip(left, inputs, strict=True))
        held = [given[name] if name in given else getattr(self, name) for name in names]
        if not operation.FORWARD or not operation.differentiated(held):
            return operation(*map(self.declared, names, held), **sizes)

        def call(*tensors, **sizes):
            own = [t if name in given else kept for name, t, kept in zip(names, tensors, held, strict=True)]
            return LayerCall.apply(self, [sizes.get(name) for name in operation.RANGES], *own)

        operation.count(held, sizes)
        if not any(map(is_placed, inputs)):
            return call(*held, **sizes)
        shards = [t if name in given or not is_placed(t) else t.to_local() for name, t in zip(names, held, strict=True)]
        return operation.placed(call, shards, sizes)

    def cast(self, inputs):
        """As autocast does it for an operator: in the dtypes that the spec declares."""
        dtypes = [dtype for name, (dtype, _) in self.operation.PARAMETERS.items() if name not in self.weights]
        return [t.to(d) if t.is_floating_point() else t for t, d in zip(inputs, dtypes, strict=False)]

    def declared(self, name, value):
        """This rank's shard of a weight, in the dtype of the spec. An input as it is."""
        if name not in self.weights:
            return value
        return (value.to_local() if is_placed(value) else value).to(self.operation.PARAMETERS[name][0])

    def summed(self, name, gradient, placed):
        """A gradient as its weight is placed: added up where each rank has an addend. One of an input as it is."""
        mesh, held, back = self.parts.get(name, (None, (), ()))
        if mesh is None or (not placed and held == back):
            return gradient
        made = self.placed(name, gradient, back).redistribute(placements=held)
        return made if placed else made.to_local()

    def shard(self, name, whole):
        """This rank's part of a whole tensor: contiguous, ceil-divided."""
        for dim, ranks, index in self.grids[name]:
            size = whole.shape[dim]
            each = -(-size // ranks)
            first = min(size, index * each)
            whole = whole.narrow(dim, first, min(size, first + each) - first)
        return whole.contiguous()

    @torch.no_grad()
    def load_dense(self, tensors):
        """Take the weights of a dense model: whole tensors by name. ValueError for a shape that does not fit. Before
        fully_shard, which cuts parameters further."""
        for name in self.weights:
            sizes = tuple(extent[0] for extent in self.operation.PARAMETERS[name][1])
            if tuple(tensors[name].shape) != sizes:
                raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}, declared as {sizes}")
            mine = getattr(self, name)
            mine = mine.to_local() if is_placed(mine) else mine
            mine.copy_(self.shard(name, tensors[name].to(mine.dtype)))

    @torch.no_grad()
    def dense(self):
        """The weights as whole tensors by name, the same on every rank. Collective."""
        held = {name: getattr(self, name).detach() for name in self.weights}
        held = {name: t if is_placed(t) else self.placed(name, t) for name, t in held.items()}
        return {name: t.full_tensor() if is_placed(t) else t.clone() for name, t in held.items()}
