"""An op as a layer: its weights are parameters of a torch.nn.Module, sharded as the spec says. Copied into the module.

Parameters are DTensors, so that torch.distributed.checkpoint saves them once and loads them on any number of ranks, and
fully_shard cuts them along another mesh axis.
"""

from __future__ import annotations

import copy
import weakref

import torch


def is_placed(value):
    """Is it a DTensor? A tracer says of any tensor that it may have attributes, so its type comes first."""
    return type(value) not in (torch.Tensor, torch.nn.Parameter) and hasattr(value, "device_mesh")


def wide_leaf(parameter, back):
    """This rank's shard of a DTensor parameter as a leaf whose gradient is added to the parameter's in f32: on its way
    through the DTensor autograd would round it to the parameter's dtype. `back`: placements of the gradient."""
    from torch.distributed.tensor import DTensor

    leaf = parameter.to_local().detach().requires_grad_()
    leaf.grad_dtype = parameter.grad_dtype

    def add(leaf):
        mesh, kind = parameter.device_mesh, back or parameter.placements
        made = DTensor.from_local(leaf.grad, mesh, kind, run_check=False, shape=parameter.shape,
                                  stride=parameter.stride())  # fmt: skip
        made = made.redistribute(placements=parameter.placements)
        leaf.grad = None
        parameter.grad = made if parameter.grad is None else parameter.grad.add_(made)

    leaf.register_post_accumulate_grad_hook(add)
    return leaf


def local_of(value, back):
    """This rank's shard of a DTensor. `back`: placements of the gradient that it gets; where each rank has an addend of
    it the backward pass adds them up, so that it ends placed as the tensor is."""
    if back is None:
        return value.to_local()
    if any(b.is_partial() for b in back):
        value = value.redistribute(placements=value.placements)
    return value.to_local(grad_placements=back)


class OpLayer(torch.nn.Module):
    """`operation` with some of its tensors as parameters: `layer(x)` for an op (x, w1, b1, w2) with three weights.

    Values are drawn as whole tensors from `seed`, normal with deviation `std` (vectors are 0), then cut: the same on
    any number of ranks. ValueError for a name that the op has not, for one whose shape holds a run-time size, and
    for one with a layout that no DTensor has.

    On a mesh of two axes a weight is on the part of the mesh that cuts it (on the op's own axes where none does). Of a
    gradient that is Partial there the sum is taken; the sum over the other axis is the caller's: fully_shard, or an
    all_reduce of `p.grad.to_local()`.
    """

    def __init__(self, operation, weights, seed=0, std=0.02):
        super().__init__()
        self.operation = operation
        self.weights = tuple(weights)
        self.mesh = operation.module.mesh
        unknown = [name for name in self.weights if name not in operation.PARAMETERS]
        if unknown:
            known = ", ".join(operation.PARAMETERS)
            raise ValueError(f"{operation.NAME} has no tensor {', '.join(unknown)}; it has {known}")
        draw = torch.Generator().manual_seed(seed)
        self.grids = {name: self.grid_of(name) for name in self.weights}
        self.wide = {}  # weights whose gradients the op gives in f32
        self.back = {name: self.back_of(name) for name in self.weights}
        for name in self.weights:
            dtype, shape = operation.PARAMETERS[name]
            sizes = [extent[0] for extent in shape]
            if not all(isinstance(size, int) for size in sizes):
                raise ValueError(f"{operation.NAME}: {name} has a run-time size, so it is no weight")
            if any(isinstance(extent[1], tuple) for extent in shape):
                raise ValueError(f"{operation.NAME}: no DTensor has the layout of {name}: keep it as a tensor")
            whole = torch.zeros(sizes) if len(sizes) < 2 else torch.randn(sizes, generator=draw) * std
            local = self.shard(name, whole.to(dtype)).to(operation.machine.device)
            made = torch.nn.Parameter(self.placed(name, local, whole))
            self.register_parameter(name, made)
            if operation.gradient_dtypes().get(name, dtype) != dtype and hasattr(made, "grad_dtype"):
                made.grad_dtype = operation.gradient_dtypes()[name]
                self.wide[name] = weakref.ref(made)

    def __deepcopy__(self, memo):
        """Another layer of the same op: its weights are copies, the instance is one."""
        made = memo[id(self)] = type(self).__new__(type(self))
        memo |= {id(shared): shared for shared in (self.operation, self.mesh)}
        made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in vars(self).items() if k != "wide"})
        made.wide = {name: weakref.ref(getattr(made, name)) for name in self.wide}
        for name in made.wide:
            getattr(made, name).grad_dtype = self.operation.gradient_dtypes()[name]
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

    def back_of(self, name):
        """Placements of a weight's gradient on its part of the mesh; None without one."""
        back = self.operation.gradient_placements().get(name)
        return back and tuple(back[i] for i in self.axes_of(name))

    def placed(self, name, local, whole):
        """A shard as the DTensor that it is part of; itself where there is no process group."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor

        mesh, axes = self.mesh, self.axes_of(name)
        if mesh is None:
            return local
        if len(axes) < mesh.ndim:
            names = mesh.mesh_dim_names
            mesh = mesh[names[axes[0]]] if names else DeviceMesh.from_group(mesh.get_group(axes[0]), mesh.device_type)
        placements = [self.operation.placements[name][i] for i in axes]
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())

    def forward(self, *inputs, **sizes):
        """The op's result. `inputs`: its other tensors, in the spec's order, local ones or DTensors; `sizes`: run-time
        sizes."""
        others = iter(inputs)
        tensors = [self.local(name) if name in self.weights else next(others) for name in self.operation.PARAMETERS]
        return self.operation(*tensors, *others, **sizes)

    def local(self, name):
        """This rank's shard of a parameter; gradients flow through, and are added up where each rank has an addend."""
        value = getattr(self, name)
        if not is_placed(value):
            return value
        back = self.back[name]
        back = back if back and len(back) == len(value.placements) else None
        own = name in self.wide and self.wide[name]() is value and not torch.compiler.is_compiling()
        if own and value.requires_grad and torch.is_grad_enabled():
            return wide_leaf(value, back)
        return local_of(value, back)

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
            mine = self.local(name)
            mine.copy_(self.shard(name, tensors[name].to(mine.dtype)))

    @torch.no_grad()
    def dense(self):
        """The weights as whole tensors by name, the same on every rank. Collective."""
        held = {name: getattr(self, name).detach() for name in self.weights}
        return {name: t.full_tensor() if hasattr(t, "full_tensor") else t.clone() for name, t in held.items()}
