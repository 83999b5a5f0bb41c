"""Collectives of the process group, for `exact` and `fallback`. Copied into the module.

With NCCL the group's own functions are called, those that the functions of torch.distributed call once they have looked
at their arguments, which takes the host about as long as the call itself. They are the same for every call: an addition
or a gather of tensors on this device, in order of the current stream. Where torch has no such function, or no such
options, that of torch.distributed is called.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


class Collectives:
    """What `Machine` needs of it: `world`, `rank`, `group`, and `_failed`, which makes an error of one."""

    _backend, _all_reduce, _gather_into, _scatter_into = None, None, None, None

    @staticmethod
    def direct_way(group, options, name, older=""):
        """A function that hands tensors to the group's function `name`, or `older` where torch still calls it so.
        AttributeError where it is not as it is known."""
        call = getattr(group, name if hasattr(group, name) or not older else older)
        given = getattr(dist.distributed_c10d, options)()
        given.asyncOp = False

        def way(*tensors):
            work = call(*tensors, given)
            if work is not None:
                work.wait()

        return way

    def _by_nccl(self):
        if self._backend is None:
            self._backend = dist.get_backend(self.group)
            if self._backend == "nccl":
                self._look_up_ways()
        return self._backend == "nccl"

    def _look_up_ways(self):
        """How tensors are given to NCCL."""
        group = self.group
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # as it is called now
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        try:
            self._all_reduce = self.direct_way(group, "AllreduceOptions", "allreduce")
            names = ("all_gather_single", "_allgather_base"), ("reduce_scatter_single", "_reduce_scatter_base")
            self._gather_into = self.direct_way(group, "AllgatherOptions", *names[0])
            self._scatter_into = self.direct_way(group, "ReduceScatterOptions", *names[1])
        except AttributeError:
            self._all_reduce = lambda tensors: dist.all_reduce(*tensors, group=group)
            self._gather_into = lambda out, tensor: gather(out, tensor, group=group)
            self._scatter_into = lambda out, tensor: scatter(out, tensor, group=group)

    def _leave_group(self):
        self.group = self._backend = self._all_reduce = self._gather_into = self._scatter_into = None

    def gather(self, tensor, flat=False):
        """[world, *tensor.shape]: every rank's tensor, bits unchanged; `flat`: their rows behind each other, without
        that first dimension. Collective; equal shapes on every rank."""
        tensor, shape = tensor.contiguous(), tensor.shape
        out = tensor.new_empty((self.world * shape[0], *shape[1:]) if flat else (self.world, *shape))
        try:
            if self._by_nccl():
                self._gather_into(out, tensor)
            else:
                dist.all_gather(list(out.view(self.world, *tensor.shape).unbind()), tensor, group=self.group)
        except RuntimeError as error:
            raise self._failed("a gather", error) from error
        return out

    def all_to_all(self, tensor):
        """[world, ...]: of every rank's [world, ...] the entry that is for this rank. Collective."""
        tensor = tensor.contiguous()
        if not self._by_nccl():
            return self.gather(tensor)[:, self.rank]
        out = torch.empty_like(tensor)
        try:
            dist.all_to_all_single(out, tensor, group=self.group)
        except RuntimeError as error:
            raise self._failed("an all-to-all", error) from error
        return out

    def total_shard(self, tensor, rows):
        """This rank's `rows` rows of the sum over ranks of [world * rows, n]. Collective."""
        if not self._by_nccl():
            return self.total(tensor)[self.rank * rows : (self.rank + 1) * rows]
        out = tensor.new_empty((rows, *tensor.shape[1:]))
        try:
            self._scatter_into(out, tensor.contiguous())
        except RuntimeError as error:
            raise self._failed("a reduction", error) from error
        return out

    def total(self, tensor, own=False):
        """The sum over ranks, in whatever order the library adds. `own`: it may take the place of the tensor.
        Collective."""
        out = tensor if own and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)
        try:
            if self._by_nccl():
                self._all_reduce([out])
            else:
                dist.all_reduce(out, group=self.group)
        except RuntimeError as error:
            raise self._failed("a reduction", error) from error
        return out
