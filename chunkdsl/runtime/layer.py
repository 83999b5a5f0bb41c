"""An op as a layer: its weights are parameters of a torch.nn.Module, sharded as the spec says. Copied into the module.

Parameters are DTensors, so that torch.distributed.checkpoint saves them once and loads them on any number of ranks.
"""

from __future__ import annotations

import torch


class OpLayer(torch.nn.Module):
    """`operation` with some of its tensors as parameters: `layer(x)` for an op (x, w1, b1, w2) with three weights.

    Values are drawn as whole tensors from `seed`, normal with deviation `std` (vectors are 0), then cut: the same on
    any number of ranks. ValueError for a name that the op has not, for one whose shape holds a run-time size, and on a
    mesh of two axes.
    """

    def __init__(self, operation, weights, seed=0, std=0.02):
        super().__init__()
        self.operation = operation
        self.weights = tuple(weights)
        unknown = [name for name in self.weights if name not in operation.PARAMETERS]
        if unknown:
            known = ", ".join(operation.PARAMETERS)
            raise ValueError(f"{operation.NAME} has no tensor {', '.join(unknown)}; it has {known}")
        if operation.here:
            raise ValueError(f"{operation.NAME} runs on a mesh of two axes: keep its weights as tensors of your own")
        draw = torch.Generator().manual_seed(seed)
        for name in self.weights:
            dtype, shape = operation.PARAMETERS[name]
            sizes = [extent[0] for extent in shape]
            if not all(isinstance(size, int) for size in sizes):
                raise ValueError(f"{operation.NAME}: {name} has a run-time size, so it is no weight")
            whole = torch.zeros(sizes) if len(sizes) < 2 else torch.randn(sizes, generator=draw) * std
            local = self.shard(name, whole.to(dtype)).to(operation.machine.device)
            self.register_parameter(name, torch.nn.Parameter(self.placed(name, local, whole)))

    def placed(self, name, local, whole):
        """A shard as the DTensor that it is part of; itself where there is no process group."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        machine, dim = self.operation.machine, self.sharded_dim(name)
        if machine.group is None:
            return local
        mesh = DeviceMesh.from_group(machine.group, machine.device.type)
        placements = [Replicate() if dim is None else Shard(dim)]
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())

    def forward(self, *inputs, **sizes):
        """The op's result. `inputs`: its other tensors, local, in the spec's order; `sizes`: run-time sizes."""
        others = iter(inputs)
        tensors = [self.local(name) if name in self.weights else next(others) for name in self.operation.PARAMETERS]
        return self.operation(*tensors, *others, **sizes)

    def local(self, name):
        """This rank's shard of a parameter; gradients flow through."""
        value = getattr(self, name)
        return value.to_local() if hasattr(value, "to_local") else value

    def sharded_dim(self, name):
        """The dimension of a tensor that the spec shards, or None."""
        return next((i for i, extent in enumerate(self.operation.PARAMETERS[name][1]) if extent[1]), None)

    def shard(self, name, whole):
        """This rank's part of a whole tensor: contiguous, ceil-divided."""
        dim, operation = self.sharded_dim(name), self.operation
        if dim is None:
            return whole.contiguous()
        size = whole.shape[dim]
        each = -(-size // operation.world)
        first = min(size, operation.rank * each)
        return whole.narrow(dim, first, min(size, first + each) - first).contiguous()

    @torch.no_grad()
    def load_dense(self, tensors):
        """Take the weights of a dense model: whole tensors by name. ValueError for a shape that does not fit."""
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
