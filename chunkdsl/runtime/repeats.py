"""Calls that come again with the same tensors in the same places, outside of the caller's own graphs: they are started
by one launch of a CUDA graph, captured from what would have been played. Copied into the module.

In a loop the allocator gives out the same addresses again and again, so most calls of a model do. What a graph holds is
what a call launches: addresses of the instance's memory and of the call's tensors, sizes, nothing else. Ranks need not
agree on it. A profiler sees the kernels of such a call, and the name of the op, but no names of chunks.

Products of the library are recorded like launches. The memory that cuBLAS works in is torch's, a piece for each handle
and stream, made when it is first wanted: for the lane that is captured, in the pool of the recordings, where it stays.
Where torch lets go of all such pieces (`torch.compile` does, for graphs of its own) it falls back to this pool, which
nothing else takes from and the driver does not get back; a later recording may put something in its place, which harms
none, as calls of an instance follow one another and each writes there before it reads.
"""

from __future__ import annotations

import torch


class RecordedLaunches:
    """What `Machine` needs of it."""

    RECORDS, unrecorded = True, ""  # whether calls are recorded, and what went wrong when one was
    _recorder = None  # the lane that is captured, and the pool of what Triton's launches need while they run
    _first = None  # a graph that stays: a pool without any is none for torch's allocator of pinned memory

    def recorded(self, play):
        """A function that does in one launch on the current stream what `play()` puts there. None where it cannot be
        captured, and on AMD."""
        if not self.RECORDS or self.device.type != "cuda" or torch.version.hip:
            return None
        try:
            if self._recorder is None:
                self.open_lane("recorder")
                self._recorder = (self._lanes["recorder"], torch.cuda.MemPool())  # there also while no graph is
            stream, pool = self._recorder
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=pool.id, capture_error_mode="thread_local")
                try:
                    play()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            self.RECORDS, self.unrecorded = False, str(error.__context__ or error)
            return None
        self._first = self._first or graph
        return graph.replay


class Repeats:
    """Those of one op."""

    AFTER, MOST, MOST_SEEN, CLEARINGS = 2, 128, 1024, 8  # times played before; graphs; places noted; see `record`

    def __init__(self, machine):
        self.machine, self.graphs, self.seen, self.cleared = machine, {}, {}, 0

    def play(self, tape, tensors):
        """The call of `tape` on these tensors, in whichever way. A profiler of Triton's launches shall see them all."""
        if self.machine.watched():
            return tape.play(tensors)
        place = (tape, *[t.data_ptr() for t in tensors])
        again = self.graphs.get(place) or self.record(place, tape, tensors)
        return tape.play(tensors) if again is None else again()

    def record(self, place, tape, tensors):
        """The graph of a call that has come often enough, or None."""
        times = self.seen[place] = self.seen.get(place, 0) + 1
        if len(self.seen) > self.MOST_SEEN:
            self.seen.clear()
        if times <= self.AFTER or self.cleared > self.CLEARINGS:
            return None
        if len(self.graphs) >= self.MOST:
            self.machine.synchronize()  # a graph must not go while it runs
            self.graphs.clear()
            self.cleared += 1
        self.seen.pop(place, None)
        again = self.machine.recorded(lambda: tape.play(tensors))
        if again is not None:
            self.graphs[place] = again
        return again
