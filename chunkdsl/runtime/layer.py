"""An op as a layer: its weights are parameters of a torch.nn.Module, sharded as the spec says. Copied into the module.

Parameters are DTensors, so that torch.distributed.checkpoint saves them once and loads them on any number of ranks, and
fully_shard cuts them along another mesh axis.
"""

from __future__ import annotations

import copy
import warnings

import torch

from chunkdsl.runtime.gradients import Saved, bare, by_operator, no_gradient, one_by_one, results_of, transformed


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


def refuse_placed(name, tensors):
    if transformed() and any(is_placed(bare(t)) for t in tensors):
        raise TypeError(f"{name}: transforms of torch.func do not look into DTensors: pass to_local() of the inputs")


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
    def forward(layer, sizes, *held):
        forward = layer.operation.partner(layer.operation.FORWARD)
        given = [layer.declared(n, t) for n, t in zip(forward.PARAMETERS, held, strict=True)]
        return by_operator(forward, given, sizes)

    @staticmethod
    def setup_context(context, inputs, output):
        layer, sizes, *held = inputs
        forward = layer.operation.partner(layer.operation.FORWARD)
        Saved(type(forward)).keep(context, (*held, forward.number), output)
        context.name, context.layer, context.sizes = forward.NAME, layer, sizes
        context.placed = [is_placed(bare(t)) for t in held]

    @staticmethod
    def backward(context, *gradients):
        layer, needed = context.layer, list(context.needs_input_grad[2:])
        forward = layer.operation.partner(layer.operation.FORWARD)
        given = Saved(type(forward)).arguments(context, gradients)
        again = torch.is_grad_enabled() or transformed()
        call = LayerGradient.apply if again else LayerGradient.forward
        return None, None, *call(layer, context.sizes, context.placed, needed, *given)

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(info, in_dims, LayerCall.apply, args)


class LayerGradient(torch.autograd.Function):
    """Gradients of a layer's call, those that are `needed`, each placed as its parameter is."""

    @staticmethod
    def forward(layer, sizes, placed, needed, *given):
        forward = layer.operation.partner(layer.operation.FORWARD)
        names, (name, wanted) = list(layer.operation.PARAMETERS), type(forward).BACKWARD
        pairs = zip(wanted, given, strict=True)
        tensors = [layer.declared(names[i], t) if kind == "input" else t for (kind, i), t in pairs]
        made = by_operator(forward.partner(name), tensors, sizes)
        ends = zip(names, results_of(made), placed, needed, strict=True)
        return tuple(layer.summed(n, g, there) if asked else None for n, g, there, asked in ends)

    @staticmethod
    def setup_context(context, inputs, output):
        context.name = f"{inputs[0].operation.NAME}_backward"

    @staticmethod
    def backward(context, *gradients):
        raise no_gradient(context.name)

    @staticmethod
    def vmap(info, in_dims, *args):
        return one_by_one(info, in_dims, LayerGradient.apply, args)


class OpLayer(torch.nn.Module):
    """`operation` with some of its tensors as parameters: `layer(x)` for an op (x, w1, b1, w2) with three weights.

    Values are drawn as whole tensors from `seed`, normal with deviation `std` (vectors are 0), then cut: the same on
    any number of ranks. Parameters have the dtypes that the spec declares, or all have `dtype`, from which a call
    rounds. ValueError for a name that the op has not, for one whose shape holds a run-time size, and for one with a
    layout that no DTensor has. `reset_parameters` draws them again, on "meta" too: after `to_empty` and, if any,
    fully_shard.

    On a mesh of two axes a weight is on the part of the mesh that cuts it (on the op's own axes where none does). Of a
    gradient that is Partial there the sum is taken; the sum over the other axis is the caller's: fully_shard,
    DistributedDataParallel, or an all_reduce of `p.grad.to_local()`. `local`: parameters are this rank's shards as
    ordinary tensors, not DTensors.
    """

    def __init__(self, operation, weights, seed=0, std=0.02, dtype=None, local=False):
        super().__init__()
        self.operation = operation
        self.weights = tuple(dict.fromkeys(weights))
        unknown = [name for name in self.weights if name not in operation.PARAMETERS]
        if unknown:
            known = ", ".join(operation.PARAMETERS)
            raise ValueError(f"{operation.NAME} has no tensor {', '.join(unknown)}; it has {known}")
        self.seed, self.std, self.local = seed, std, local
        self.grids = {name: self.grid_of(name) for name in self.weights}
        self.parts = {name: self.part_of(name) for name in self.weights}
        asked = torch.get_default_device()  # `with torch.device("meta")`, as torch's own layers heed it
        device = asked if asked.type == "meta" else operation.machine.device
        for name in self.weights:
            declared, shape = operation.PARAMETERS[name]
            if not all(isinstance(extent[0], int) for extent in shape):
                raise ValueError(f"{operation.NAME}: {name} has a run-time size, so it is no weight")
            if any(isinstance(extent[1], tuple) for extent in shape):
                raise ValueError(f"{operation.NAME}: no DTensor has the layout of {name}: keep it as a tensor")
            mine = self.shard(name, torch.empty(self.sizes_of(name), device="meta")).shape
            held = torch.empty(mine, dtype=dtype or declared, device=device)
            self.register_parameter(name, torch.nn.Parameter(held if local else self.placed(name, held)))
        self.reset_parameters()
        self.widen()
        self.register_load_state_dict_post_hook(OpLayer.widen)

    @torch.no_grad()
    def reset_parameters(self):
        """Draw the values from the seed, as construction does; none on the device "meta"."""
        draw = torch.Generator().manual_seed(self.seed)
        for name in self.weights:
            if not getattr(self, name).is_meta:
                whole = torch.zeros(self.sizes_of(name), device="cpu")
                self.take(name, whole.normal_(0.0, self.std, generator=draw) if whole.dim() > 1 else whole)

    def take(self, name, whole):
        """Let a weight be its part of a whole tensor, also one that fully_shard has cut again."""
        mine, mesh = getattr(self, name), self.parts[name][0]
        cut_again = is_placed(mine) and mine.device_mesh != mesh
        whole_here = cut_again and tuple(mine.shape) == self.sizes_of(name)  # a shard where the layer is `local`
        part = (whole if whole_here else self.shard(name, whole)).detach().to(mine.dtype)
        if cut_again:
            from torch.distributed.tensor import distribute_tensor

            mine.copy_(distribute_tensor(part, mine.device_mesh, mine.placements, src_data_rank=None))
        else:
            (mine.to_local() if is_placed(mine) else mine).copy_(part)

    def sizes_of(self, name):
        """The whole tensor's."""
        return tuple(extent[0] for extent in self.operation.PARAMETERS[name][1])

    def extra_repr(self):
        operation = self.operation
        left = ", ".join(name for name in operation.PARAMETERS if name not in self.weights)
        said = [f"{operation.module.NAME}.{operation.NAME}({left}) -> {', '.join(operation.RESULTS)}"]
        for name in self.weights:
            kind = ", ".join(map(str, self.parts[name][1]))
            said.append(f"{name}={str(operation.PARAMETERS[name][0])[6:]}{list(self.sizes_of(name))} {kind}")
        return ", ".join((*said, f"ranks={operation.world}"))

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
        shape = torch.Size(self.sizes_of(name))
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
        refuse_placed(operation.NAME, inputs)
        given = dict(zip(left, inputs, strict=True))
        held = [given[name] if name in given else getattr(self, name) for name in names]
        if not operation.FORWARD or not operation.differentiated(held):
            return operation(*map(self.declared, names, held), **sizes)

        def call(*tensors, **sizes):
            own = [t if name in given else kept for name, t, kept in zip(names, tensors, held, strict=True)]
            return operation.first(LayerCall.apply(self, sizes, *own))

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
        """Take the weights of a dense model: whole tensors by name. ValueError for a shape that does not fit."""
        for name in self.weights:
            if tuple(tensors[name].shape) != self.sizes_of(name):
                raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}, declared as {self.sizes_of(name)}")
            self.take(name, tensors[name])

    @torch.no_grad()
    def dense(self):
        """The weights as whole tensors by name, the same on every rank. Collective."""
        return {name: self.whole(name, getattr(self, name).detach()) for name in self.weights}

    def whole(self, name, mine):
        made = mine.full_tensor() if is_placed(mine) else mine
        if (self.local or not is_placed(mine)) and self.parts[name][0] is not None:  # also where shapes agree
            made = self.placed(name, made).full_tensor()
        return made.clone()
