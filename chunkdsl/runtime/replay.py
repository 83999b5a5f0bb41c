"""A call of sizes that were called before is launched again from what was noted the first time: the same launches and
copies in the same order, with this call's tensors in their places. Copied into the module.

It saves the host's time and nothing else: what the sizes decide was decided by the noted call, what differs between two
calls of equal sizes (epochs, flags) lies in device memory, as it must for replays of a CUDA graph. A call is noted only
if every pointer in it is known: memory of the instance, or a tensor of the call. Otherwise it is run anew each time.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from chunkdsl.runtime.repeats import Repeats


def moved(descriptor, tensor):
    """The same descriptor of another tensor. Its checks have been made."""
    made = object.__new__(type(descriptor))
    made.__dict__.update(descriptor.__dict__, base=tensor)
    return made


def argument_of(where, tensors):
    """What a launch gets of a call's tensors: one of them as it is, as another dtype or a part of it; in a descriptor
    where there was one."""
    slot, change, descriptor = where
    value = tensors[slot]
    if change is not None:
        value = value.view(*change) if len(change) == 1 else part_of(value, *change)
    return value if descriptor is None else moved(descriptor, value)


def part_of(tensor, shape, stride, offset):
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


class Tape:
    """Stands in for the machine while a call runs; passes everything on. `good`: the call can be played again."""

    QUIET = ("world", "rank", "target", "sms", "device", "fit", "capturing", "starts_early", "starts_beside",
             "crowd")
    MOST = 64  # sizes of an op that are kept
    known = None  # what `Calls` knows of calls that are played

    def __init__(self, machine, owned, tensors):
        """`owned`: (first address, end) of each piece of the instance's memory on any rank; `tensors`: of the call."""
        self.machine, self.owned, self.tensors = machine, owned, tensors
        self.spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]
        edges = sorted(span for span in self.spans if span[0] < span[1])
        self.steps, self.shares = [], False  # functions of (tensors, what `begin_play` says), and whether any needs it
        # Tensors that share memory cannot be told apart by their addresses.
        self.good = all(end <= low for (_, end), (low, _) in pairwise(edges))

    def __getattr__(self, name):
        if name not in self.QUIET:
            self.good = False
        return getattr(self.machine, name)

    def launch(self, kernel, programs, args, constants, warps, stages, early=False, **lane):
        made = self.machine.launch(kernel, programs, args, constants, warps, stages, early, **lane)
        values, fills = dict(args), {}
        for name, value in args.items():
            if value is None or isinstance(value, (int, float, str, tuple)):
                continue
            tensor = value.base if hasattr(value, "block_shape") else value
            where = self.place_of(tensor)
            if where is not None:
                fills[name] = (*where, moved(value, None) if hasattr(value, "block_shape") else None)
                values[name] = None
        start = None
        if not lane:  # what is prepared starts on the main lane
            start = self.machine.prepared(made, kernel, programs, values, constants, tuple(fills))
        filled = tuple(fills.values())
        if start is None:
            options, names, machine = (constants, warps, stages, early), tuple(fills), self.machine

            def again(tensors, shared):
                found = zip(names, (argument_of(f, tensors) for f in filled), strict=True)
                machine.launch(kernel, programs, {**values, **dict(found)}, *options, **lane)

        else:
            self.shares = True

            def again(tensors, shared):
                start([argument_of(f, tensors) for f in filled], shared)

        self.steps.append(again)

    def place_of(self, tensor):
        """Where a tensor comes from in the call: (slot, what to do to it). None for one of the instance; `good` ends
        with any other."""
        if not isinstance(tensor, torch.Tensor):
            self.good = False
            return None
        at = tensor.data_ptr()
        for slot, mine in enumerate(self.tensors):
            if tensor is mine or (at == mine.data_ptr() and tensor.nbytes == mine.nbytes > 0):
                return slot, None if tensor.dtype == mine.dtype else (tensor.dtype,)
        for slot, (low, end) in enumerate(self.spans):
            mine = self.tensors[slot]
            if low <= at and at + tensor.nbytes <= end and tensor.dtype == mine.dtype and tensor.is_contiguous():
                return slot, (tensor.shape, tensor.stride(), (at - low) // tensor.element_size())
        self.good &= self.is_owned(at)
        return None

    def is_owned(self, address):
        return any(low <= address < end for low, end in self.owned)

    def copy(self, destination, source, nbytes, lane, label=""):
        self.machine.copy(destination, source, nbytes, lane, label)
        self.note_copy((destination, source), lambda to, at: self.machine.copy(to, at, nbytes, lane, label))

    def copy_rows(self, destination, pitch, source, source_pitch, width, height, lane, label=""):
        rest = (width, height, lane, label)
        self.machine.copy_rows(destination, pitch, source, source_pitch, *rest)
        again = lambda to, at: self.machine.copy_rows(to, pitch, at, source_pitch, *rest)  # noqa: E731
        self.note_copy((destination, source), again)

    def note_copy(self, addresses, again):
        found = []
        for address in addresses:
            inside = [(slot, address - low) for slot, (low, end) in enumerate(self.spans) if low <= address < end]
            self.good &= bool(inside) or self.is_owned(address)
            found.append(inside[0] if inside else (None, address))
        if found[0][0] is found[1][0] is None:
            self.steps.append(lambda tensors, shared: again(*addresses))
            return

        def copy_again(tensors, shared):
            again(*(at if slot is None else tensors[slot].data_ptr() + at for slot, at in found))

        self.steps.append(copy_again)

    def multiply(self, label, out, left, right, transposed):
        self.machine.multiply(label, out, left, right, transposed)
        found = [(self.place_of(t), t) for t in (out, left, right)]
        kept = [(where and (*where, None), t if where is None else None) for where, t in found]

        def again(tensors, shared):
            now = (held if where is None else argument_of(where, tensors) for where, held in kept)
            self.machine.multiply(label, *now, transposed)

        self.steps.append(again)

    def fork(self, lane):
        self.machine.fork(lane)
        self.steps.append(lambda tensors, shared: self.machine.fork(lane))

    def join(self, lane):
        self.machine.join(lane)
        self.steps.append(lambda tensors, shared: self.machine.join(lane))

    def done(self):
        """Let go of the call's tensors."""
        self.tensors = self.spans = None
        return self if self.good else None

    def play(self, tensors):
        """The same call with other tensors, equal in shape, dtype and device, contiguous and aligned."""
        shared = self.machine.begin_play() if self.shares else None
        for step in self.steps:
            step(tensors, shared)


class Replays:
    """What `Operation` needs of it. `replays` may be set to False."""

    replays, audit = True, False

    def key_of(self, tensors, given):
        """Equal for calls that decide alike, wherever their tensors lie; None where ranks meet to compare each call.
        64.0 and 64 are equal, and only one of them is taken: a size that is another type has that in the key."""
        if not self.replays or self.meets:
            return None
        key = [self.gate_here(), self.audit, self.module.warps, *given.items()]
        for size in given.values():
            if size.__class__ is not int:
                key.append(size.__class__)
        for t in tensors:
            key += (t.shape, t.dtype, t.get_device())
        return tuple(key)

    def as_noted(self, tensors):
        """Do tensors lie as those of noted calls: contiguous, aligned, and none where it would be gathered?"""
        for t in tensors:
            at = t.data_ptr()
            if at % 16 or not t.is_contiguous():
                return False
            for low, end in self.places:
                if low <= at < end:
                    return False
        return True

    def look_up_memory(self):
        """Addresses of the instance's memory: all of it, and those of buffers that a caller may have filled."""
        self.tapes, self.owned, self.places, self.repeats = {}, [], [], Repeats(self.machine)
        for name, value in vars(self).items():
            local = getattr(value, "local", value)
            if isinstance(local, torch.Tensor):
                for low in getattr(value, "addresses", (local.data_ptr(),)):
                    self.owned.append((low, low + local.nbytes))
                if hasattr(value, "table"):
                    self.owned.append((value.table.data_ptr(), value.table.data_ptr() + value.table.nbytes))
                if any(name == f"_{gathered}" for gathered, *_ in self.GATHERED.values()):
                    self.places.append((local.data_ptr(), local.data_ptr() + local.nbytes))

    def run_noted(self, key, dims, tensors, results):
        """The call, noted under its key."""
        machine = self.machine
        self.machine = tape = Tape(machine, self.owned, (*tensors, *results))
        try:
            self.run(True, 1, dims, *tensors, *results)
        finally:
            self.machine = machine
        if len(self.tapes) >= tape.MOST:
            del self.tapes[next(iter(self.tapes))]
        self.tapes[key] = (dims, tape.done(), [(tuple(r.shape), r.dtype) for r in results])
