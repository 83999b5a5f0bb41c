"""Streams of a machine as the driver has them: lanes for copies, what orders them, and where a call begins and ends.
Copied into the module.

The driver is called directly, by addresses: torch's objects for streams and events cost the host more than the calls.
"""

from __future__ import annotations

import ctypes
from functools import partial

import torch
import triton

ADDRESS = ctypes.c_void_p


class Lanes:
    """What `Machine` needs of it. `_events`: of a lane, the event that it or the main lane waits for; `_last`: that of
    the last call's end; `_outside`: the stream of a call that no graph captures; `_before`: that of the last one."""

    _now = _before = None

    def _take_driver(self):
        cuda = ctypes.CDLL("libcuda.so.1")
        self._take(cuda.cuMemcpyAsync, cuda.cuMemcpy2DAsync_v2, cuda.cuStreamCreate, cuda.cuStreamDestroy_v2)
        self._take_events(cuda.cuEventCreate, cuda.cuEventRecord, cuda.cuStreamWaitEvent, cuda.cuEventDestroy_v2)

    def _take_amd_driver(self):
        hip = ctypes.CDLL("libamdhip64.so")
        self._take(hip.hipMemcpyAsync, hip.hipMemcpy2DAsync, hip.hipStreamCreateWithFlags, hip.hipStreamDestroy)
        self._take_events(hip.hipEventCreateWithFlags, hip.hipEventRecord, hip.hipStreamWaitEvent, hip.hipEventDestroy)

    def _take(self, copy, copy_rows, new_stream, end_stream):
        """Functions of the driver. Of those that are called most the arguments are plain numbers."""
        copy.argtypes = (ADDRESS, ADDRESS, ctypes.c_size_t, ADDRESS)
        self._memcpy, self._memcpy_rows = copy, copy_rows
        self._new_stream, self._end_stream = new_stream, end_stream

    def _take_events(self, new, record, wait, end):
        record.argtypes, wait.argtypes = (ADDRESS, ADDRESS), (ADDRESS, ADDRESS, ctypes.c_uint)
        self._new_event, self._record, self._wait, self._end_event = new, record, wait, end

    # ---- lanes

    def open_lane(self, lane):
        """Make a copy lane, at construction. A stream of its own: one from torch's pool may be the caller's, and copies
        behind a kernel that waits for them never start."""
        stream = ADDRESS()
        self._succeed(self._new_stream(ctypes.byref(stream), 1), "creating a stream")  # 1: not ordered with stream 0
        self._lanes[lane] = torch.cuda.ExternalStream(stream.value, device=self.device)
        self._events[lane] = self._event()  # whoever waits for it waits for what was recorded last by then

    def _event(self):
        event = ADDRESS()
        self._succeed(self._new_event(ctypes.byref(event), 2), "creating an event")  # 2: takes no times
        return event.value

    def _succeed(self, code, what):
        if code:
            raise RuntimeError(f"{what} failed with driver error {code}")

    def _stream(self, lane):
        return torch.cuda.current_stream(self.device) if lane == "main" else self._lanes[lane]

    def current(self):
        """The address of the caller's current stream."""
        if self._now is None:
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            self._now = partial(triton.runtime.driver.active.get_current_stream, index)
        return self._now()

    def _address(self, lane):
        return self.current() if lane == "main" else self._lanes[lane].cuda_stream

    def fork(self, lane):
        """Work given to `lane` from now on starts after everything given to the main lane so far."""
        self._follow(self.current(), self._events[lane], self._address(lane))

    def join(self, lane):
        """Work given to the main lane from now on starts after everything given to `lane` so far."""
        self._follow(self._address(lane), self._events[lane], self.current())

    def _follow(self, first, event, second):
        code = self._record(event, first) or self._wait(second, event, 0)
        self._succeed(code, "ordering two streams")

    # ---- copies

    def copy(self, destination, source, nbytes, lane, label=""):
        """Copy bytes between two addresses in lane order, by a copy engine where the two ends allow it. `label` names
        the chunk to a profiler."""
        if label:
            torch.cuda.nvtx.mark(label)
        code = self._memcpy(destination, source, nbytes, self._address(lane))
        if code:
            raise RuntimeError(f"asynchronous copy of {nbytes} bytes failed with driver error {code}")

    def copy_rows(self, destination, pitch, source, source_pitch, width, height, lane, label=""):
        """Copy `height` rows of `width` bytes; rows begin `pitch` and `source_pitch` bytes apart. Else as `copy`."""
        stream = self._address(lane)
        if label:
            torch.cuda.nvtx.mark(label)
        if torch.version.hip:
            values = (destination, pitch, source, source_pitch, width, height)
            code = self._memcpy_rows(*map(ADDRESS, values), 4, ADDRESS(stream))  # 4: by the addresses
        else:
            unified = 4  # CU_MEMORYTYPE_UNIFIED: the driver finds the device by the address
            sides = [(0, 0, unified, 0, address, 0, bytes_) for address, bytes_ in
                     ((source, source_pitch), (destination, pitch))]  # fmt: skip
            box = (ctypes.c_uint64 * 16)(*sides[0], *sides[1], width, height)  # CUDA_MEMCPY2D: fields of 8 bytes each
            code = self._memcpy_rows(box, ADDRESS(stream))
        if code:
            raise RuntimeError(f"asynchronous copy of {height} x {width} bytes failed with driver error {code}")

    # ---- calls

    def capturing(self):
        """Is a graph being captured?"""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def begin_call(self, name, fused=True):
        """Outside a capture, a call on another stream waits for the previous call's end. Says whether it is outside."""
        self._outside = None
        if self.device.type == "cuda":
            torch.cuda.nvtx.range_push(name)
            if not torch.cuda.is_current_stream_capturing():
                self._outside = self.current()
                if self._last is not None and (self._outside or self._before):  # stream 0 is never another one
                    self._succeed(self._wait(self._outside, self._last, 0), "waiting for the call before")
        return self._outside is not None

    def end_call(self):
        if self.device.type == "cuda":
            if self._outside is not None:
                self._last = self._last or self._event()
                self._succeed(self._record(self._last, self._outside), "noting the end of a call")
                self._before = self._outside
            torch.cuda.nvtx.range_pop()

    def end_lanes(self):
        """The device is idle."""
        for stream in self._lanes.values():
            self._end_stream(ADDRESS(stream.cuda_stream))
        for event in (*self._events.values(), *([self._last] if self._last else [])):
            self._end_event(ADDRESS(event))
        self._lanes.clear()
        self._events.clear()
        self._last = self._recorder = None
