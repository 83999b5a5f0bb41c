"""A call of sizes that were called before is launched again from what was noted the first time: the same launches and
copies in the same order, with this call's tensors in their places. Copied into the module.

It saves the host's time and nothing else: what the sizes decide was decided by the noted call, what differs between two
calls of equal sizes (epochs, flags) lies in device memory, as it must for replays of a CUDA graph. A call is noted only
if every pointer in it is known: memory of the instance, or a tensor of the call. Otherwise it is run anew each time.
"""

from __future__ import annotations

from itertools import pairwise

import torch


def moved(descriptor, tensor):
    """The same descriptor of another tensor. Its checks have been made."""
    made = object.__new__(type(descriptor))
    made.__dict__.update(descriptor.__dict__, base=tensor)
    return made


class Tape:
    """Stands in for the machine while a call runs; passes everything on. `good`: the call can be played again."""

    QUIET = ("world", "rank", "target", "sms", "device", "fit", "capturing", "starts_early")
    MOST = 64  # sizes of an op that are kept

    def __init__(self, machine, owned, tensors):
        """`owned`: (first address, end) of each piece of the instance's memory on any rank; `tensors`: of the call."""
        self.machine, self.owned, self.tensors = machine, owned, tensors
        self.spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]
        edges = sorted(span for span in self.spans if span[0] < span[1])
        # Tensors that share memory cannot be told apart by their addresses.
        self.steps, self.good = [], all(end <= low for (_, end), (low, _) in pairwise(edges))

    def __getattr__(self, name):
        if name not in self.QUIET:
            self.good = False
        return getattr(self.machine, name)

    def launch(self, kernel, programs, args, constants, warps, stages, early=False):
        made = self.machine.launch(kernel, programs, args, constants, warps, stages, early)
        values, places = dict(args), []
        for name, value in args.items():
            if value is None or isinstance(value, (int, float, str, tuple)):
                continue
            tensor = value.base if hasattr(value, "block_shape") else value
            slot = self.slot_of(tensor)
            if slot is not None:
                places.append((name, slot, *self.emptied(value)))
                values[name] = None
        start = self.machine.prepared(made, kernel, programs, values, constants, warps, stages)
        again = (kernel, programs, constants, warps, stages, early)
        self.steps.append((start, values if start is None else None, places, again))

    def slot_of(self, tensor):
        """Which tensor of the call this is, or None for one of the instance; `good` ends with any other."""
        if not isinstance(tensor, torch.Tensor):
            self.good = False
            return None
        for slot, mine in enumerate(self.tensors):
            if tensor is mine or (tensor.data_ptr() == mine.data_ptr() and tensor.nbytes == mine.nbytes > 0):
                return slot
        self.good &= self.is_owned(tensor.data_ptr())
        return None

    def is_owned(self, address):
        return any(low <= address < end for low, end in self.owned)

    @staticmethod
    def emptied(value):
        """(descriptor without its tensor or None, dtype as which the kernel reads): nothing of the call is kept."""
        if hasattr(value, "block_shape"):  # a tensor descriptor, of Triton or of Gluon
            return moved(value, None), value.base.dtype
        return None, value.dtype

    def copy(self, destination, source, nbytes, lane, label=""):
        self.machine.copy(destination, source, nbytes, lane, label)
        self.note_copy("copy", (destination, source), (nbytes, lane, label))

    def copy_rows(self, destination, pitch, source, source_pitch, width, height, lane, label=""):
        self.machine.copy_rows(destination, pitch, source, source_pitch, width, height, lane, label)
        self.note_copy("copy_rows", (destination, source), (pitch, source_pitch, width, height, lane, label))

    def note_copy(self, name, addresses, rest):
        found = []
        for address in addresses:
            inside = [(slot, address - low) for slot, (low, end) in enumerate(self.spans) if low <= address < end]
            self.good &= bool(inside) or self.is_owned(address)
            found.append(inside[0] if inside else (None, address))
        self.steps.append((name, found, rest, None))

    def fork(self, lane):
        self.machine.fork(lane)
        self.steps.append(("fork", lane, None, None))

    def join(self, lane):
        self.machine.join(lane)
        self.steps.append(("join", lane, None, None))

    def done(self):
        """Let go of the call's tensors."""
        self.tensors = self.spans = None
        return self if self.good else None

    def play(self, tensors):
        """The same call with other tensors, equal in shape, dtype and device, contiguous and aligned."""
        machine = self.machine
        for what, first, second, third in self.steps:
            if third is None and isinstance(what, str):
                self.play_other(what, first, second, tensors)
                continue
            filled = []
            for name, slot, descriptor, dtype in second:
                value = tensors[slot]
                if value.dtype != dtype:
                    value = value.view(dtype)
                if descriptor is not None:
                    value = moved(descriptor, value)
                filled.append((name, value))
            if what is not None:
                what(filled)
            else:
                kernel, programs, *options = third
                machine.launch(kernel, programs, {**first, **dict(filled)}, *options)

    def play_other(self, what, first, second, tensors):
        if what in ("fork", "join"):
            getattr(self.machine, what)(first)
            return
        to, source = (at if slot is None else tensors[slot].data_ptr() + at for slot, at in first)
        if what == "copy":
            self.machine.copy(to, source, *second)
        else:
            pitch, source_pitch, *rest = second
            self.machine.copy_rows(to, pitch, source, source_pitch, *rest)


class Replays:
    """What `Operation` needs of it. `replays` may be set to False."""

    replays, audit = True, False

    def key_of(self, tensors, given):
        """Equal for calls that bind, decide and launch alike; None where a call is not for replay."""
        if not self.replays or self.why_not is not None or self.module.check_calls:
            return None
        for t in tensors:
            at = t.data_ptr()
            if at % 16 or not t.is_contiguous() or any(low <= at < end for low, end in self.places):
                return None
        return (self.audit, self.module.warps, *given.values(), *[(t.shape, t.dtype, t.device) for t in tensors])

    def look_up_memory(self):
        """Addresses of the instance's memory: all of it, and those of buffers that a caller may have filled."""
        self.tapes, self.owned, self.places = {}, [], []
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
        self.tapes[key] = (dims, tape.done())
