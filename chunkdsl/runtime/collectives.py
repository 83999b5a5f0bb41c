"""Collectives of the process group, for `exact` and `fallback`. Copied into the module.

With NCCL the group's own functions are called, those that the functions of torch.distributed call once they have looked
at their arguments, which takes the host about as long as the call itself. They are the same for every call: an addition
or a gather of tensors on this device, in order of the current stream. Where torch has no such function, or no such
options, that of torch.distributed is called.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.distributed as dist


def copied(tensor):
    """A contiguous tensor of the same values."""
    return tensor.clone() if tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)


class Collectives:
    """What `Machine` needs of it: `world`, `rank`, `group`, and `_failed`, which makes an error of one."""

    NAMES: ClassVar = {
        "gather": ("AllgatherOptions", "all_gather_single", "_allgather_base"),
        "scatter": ("ReduceScatterOptions", "reduce_scatter_single", "_reduce_scatter_base"),
        "total": ("AllreduceOptions", "allreduce"),
    }
    _backend, _all_reduce, _gather_into, _scatter_into = None, None, None, None

    @staticmethod
    def found(owner, options, name, older=""):
        """(function `name` of a group or of its backend, or `older` where torch still calls it so, the options that it
        takes last). AttributeError where it is not as it is known."""
        call = getattr(owner, name if hasattr(owner, name) or not older else older)
        given = getattr(dist.distributed_c10d, options)()
        given.asyncOp = False
        return call, given

    @classmethod
    def direct_way(cls, *what):
        """A function that hands tensors to what `found` finds."""
        call, given = cls.found(*what)

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
            self._all_reduce = self.direct_way(group, *self.NAMES["total"])
            self._gather_into = self.direct_way(group, *self.NAMES["gather"])
            self._scatter_into = self.direct_way(group, *self.NAMES["scatter"])
        except AttributeError:
            self._all_reduce = lambda tensors: dist.all_reduce(*tensors, group=group)
            self._gather_into = lambda out, tensor: gather(out, tensor, group=group)
            self._scatter_into = lambda out, tensor: scatter(out, tensor, group=group)

    def straight_step(self, kind, shape, product=None):
        """A collective of calls that come again, behind or ahead of `product` if there is one, as a function of tensors
        alone: x, and w of products. `gather` into a tensor of `shape`, then product(that, w); or of product(x, w)
        `scatter` the sum over ranks into one, `total` in place; `total` of a copy of x without a product. It is the
        backend's own function, past torch's dispatcher: for calls that nobody looks at. None without NCCL, or where it
        is not as it is known."""
        if self.group is None or not self._by_nccl():  # ranks of one process have no group
            return None
        try:
            call, given = self.found(self.group._get_backend(self.device), *self.NAMES[kind])
        except (AttributeError, RuntimeError):
            return None

        def gathered(x, w=None):
            out = x.new_empty(*shape)  # a tuple takes torch longer to read
            try:
                work = call(out, x.contiguous(), given)
                if work is not None:
                    work.wait()
            except RuntimeError as error:
                raise self._failed("a gather", error) from error
            return out if product is None else product(out, w)

        def scattered(x, w=None):
            every = x.contiguous() if product is None else product(x, w)
            out = every.new_empty(*shape)
            try:
                work = call(out, every, given)
                if work is not None:
                    work.wait()
            except RuntimeError as error:
                raise self._failed("a reduction", error) from error
            return out

        def total(x, w=None):
            out = copied(x) if product is None else product(x, w)
            try:
                work = call([out], given)
                if work is not None:
                    work.wait()
            except RuntimeError as error:
                raise self._failed("a reduction", error) from error
            return out

        return {"gather": gathered, "scatter": scattered, "total": total}[kind]

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
        out = tensor if own and tensor.is_contiguous() else copied(tensor)
        try:
            if self._by_nccl():
                self._all_reduce([out])
            else:
                dist.all_reduce(out, group=self.group)
        except RuntimeError as error:
            raise self._failed("a reduction", error) from error
        return out
