"""Launches that are made again, without Triton's look at each argument. Copied into the module.

Bits of calls that were played like this equal those of `exact`, on virtual ranks and on processes that share a GPU
(tests/bench/RESULTS.md).
"""

from __future__ import annotations

import torch
import triton


class PreparedLaunches:
    """What `Machine` needs of it."""

    PREPARES = True  # whether played launches go past Triton

    def prepared(self, made, kernel, programs, args, constants, changing):
        """A function that starts a launch like one that has been made. It takes the values of `changing` (names of
        arguments that are other ones, of equal dtypes and alignment), in that order, and what `begin_play` said. None
        if not PREPARES, and on AMD, where Triton compiles by the size of a tensor's storage too."""
        if not self.PREPARES or torch.version.hip:
            return None
        names = kernel.arg_names
        missing = {n: kernel.signature.parameters[n].default for n in names if n not in args and n not in constants}
        held = [{**missing, **args, **constants}[name] for name in names]
        places = [names.index(name) for name in changing]
        grid = (*programs, 1, 1)[:3] if isinstance(programs, tuple) else (programs, 1, 1)
        start, function, packed = made.run, made.function, made.packed_metadata

        def again(changed, shared):
            values = held.copy()
            for place, value in zip(places, changed, strict=True):
                values[place] = value
            stream, enter, leave = shared
            if enter is None:
                start(*grid, stream, function, packed, None, None, None, *values)
            else:
                said = made.launch_metadata(grid, stream, *values)
                start(*grid, stream, function, packed, said, enter, leave, *values)

        return again

    def begin_play(self):
        """What all launches of one played call share: the stream, and Triton's hooks if a profiler looks at them."""
        triton.set_allocator(self._scratch)
        hooks = triton.knobs.runtime
        watched = self.watched()
        return (self.current(), *((hooks.launch_enter_hook, hooks.launch_exit_hook) if watched else (None, None)))

    def watched(self):
        """Does a profiler look at Triton's launches?"""
        hooks = triton.knobs.runtime
        enter, leave = hooks.launch_enter_hook, hooks.launch_exit_hook
        return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
