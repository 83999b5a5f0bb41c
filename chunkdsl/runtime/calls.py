"""A call of an op, from what the caller gives to what runs: the fused op, or what it does below its gate. Copied into
the module.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from chunkdsl.runtime.apart import keep_apart
from chunkdsl.runtime.dispatch import (
    as_declared,
    function_modes_here,
    is_profiled,
    modes_here,
    say_changed,
    unobserved,
    updating,
    wants_gradients,
)
from chunkdsl.runtime.gradients import Call, by_operator, transformed
from chunkdsl.runtime.known import Known
from chunkdsl.runtime.layer import refuse_placed
from chunkdsl.runtime.placed import any_placed
from chunkdsl.runtime.replay import Tape

in_dynamo = torch.compiler.is_dynamo_compiling  # the tracer knows it, and makes True of it


class Calls:
    """What `Operation` needs of it. `last`: the way of the last call that nobody looked at, if one like it may go it
    unseen."""

    last = None

    def __setattr__(self, name, value):
        """What is set may decide how calls go: the next one is looked at."""
        self.__dict__[name] = value
        self.__dict__["last"] = None

    def __call__(self, *tensors, out=None, **given):
        """The fused op; its fallback below the gate or where hardware or shape does not suit."""
        if not in_dynamo():
            last = self.last
            if last is not None and out is None:
                try:
                    like = given == last.sizes and last.fits(*tensors)
                except TypeError:  # another number of tensors
                    like = False
                for size in given.values():
                    like = like and size.__class__ is int  # 64.0 is equal to 64, and no size
                if like and not (
                    is_profiled()
                    or modes_here()
                    or function_modes_here()
                    or forward_ad._current_level >= 0
                    or (last.graded and wants_gradients())
                    or (last.captured is not None and last.captured != self.machine.capturing())
                ):
                    return last.run(*tensors)
        direct = out is None and not torch.compiler.is_compiling() and unobserved(tensors)
        if direct:
            key = self.key_of(tensors, given)
            straight = self.straight.get(key)
            if straight is not None and not self.closed_because:
                self.remember(straight, tensors, given)
                return straight.run(*tensors)
        self.count(tensors, given)
        sizes = {name: given.get(name) for name in self.RANGES}
        if direct:
            result = self.call(tensors, sizes, None, key)
            if self.INOUT:
                say_changed(self, tensors)
            known = self.straight.get(key) or self.known_played(key, tensors)
            if known is not None:
                self.remember(known, tensors, given)
            return result
        refuse_placed(self.NAME, tensors)
        if any_placed(tensors):
            return self.placed(self, tensors, given, out)
        if out is None:
            if self.INOUT:
                return updating(self, by_operator, tensors, sizes)
            if transformed():
                cast = torch.is_autocast_enabled(self.machine.device.type)
                given = as_declared(self, tensors) if cast else tensors
                return self.first(Call.apply(by_operator, self.ahead(tensors), sizes, *given))
            return self.first(by_operator(self.ahead(tensors), tensors, sizes))
        if self.differentiated(tensors):
            raise RuntimeError(f"{self.NAME}: out= takes no part in a gradient: leave it out, or call under no_grad()")
        self.operator_into(*tensors, *self.outs(out), self.number, *sizes.values())
        return out

    def call(self, tensors, given, out, key=""):
        """What the operator does: `tensors` and sizes as the caller gave them, `out` None or a tensor a result; `key`
        if it has been looked up."""
        self.check()
        if key == "":
            key = self.key_of(tensors, given)
        if key is not None and not self.as_noted(tensors):
            key = None
        if key is not None and (out or self.INOUT):
            keep_apart(self, tensors, out or ())
        if key in self.below:
            return self.run_unfused(*self.below[key], tensors, out)
        dims, tape, shapes = self.tapes.get(key) or (None, None, None)
        if dims is None:
            tensors, dims = self.agreed(tensors, given, outs=out or ())
            reason = self.unfused(dims)
            if reason is not None:
                self.note(self.below, key, (reason, dims))
                if self.why_not is None and self.FALLBACK != "exact" and not self.BODIES:
                    self.note(self.straight, key, Known(self.straight_call(dims, tensors)))
                return self.run_unfused(reason, dims, tensors, out)
        if shapes is None or out is not None:
            results = self.results(dims, out)
        else:
            results = [self.machine.empty(*shape) for shape in shapes]
        outside = self.machine.begin_call(self.NAME)
        try:
            if tape is not None:
                play = self.repeats.play if outside and tape.steps else Tape.play
                play(tape, (*tensors, *results))
            elif key is not None and key not in self.tapes:
                self.run_noted(key, dims, tensors, results)
            else:
                self.run(True, 1, dims, *tensors, *results)
        except (Exception, KeyboardInterrupt) as error:
            self.abandon(error)
            raise
        self.machine.end_call()
        return self.first(results)

    def remember(self, known, tensors, given):
        """A call that nobody looked at went this way, and one like it shall go it unseen."""
        known.learn(tensors, given)
        known.captured = None if self.gate == self.eager_gate else self.machine.capturing()
        self.__dict__["last"] = known if known.fits else None

    def known_played(self, key, tensors):
        """What is known of calls of this key if they are played, these tensors too."""
        _, tape, shapes = self.tapes.get(key) or (None, None, None)
        if tape is None or not self.as_noted(tensors):
            return None
        if tape.known is None:
            tape.known = Known(self.played_call(tape, shapes))
        return tape.known

    def played_call(self, tape, shapes):
        """A function of the tensors of calls that are played: what `call` does with them, and no more."""
        machine, module, repeats, verdict = self.machine, self.module, self.repeats, self.verdict
        warps, graphs, name, inout, many = module.warps, repeats.graphs, self.NAME, self.INOUT, len(self.RESULTS) > 1

        def run(*tensors):
            if machine.failure or verdict.value:
                self.check()
            results = [machine.empty(*shape) for shape in shapes]
            every = (*tensors, *results)
            graph = graphs.get((tape, *[t.data_ptr() for t in every]))  # of places that were looked at
            if module.warps != warps or (graph is None and not self.as_noted(tensors)):
                self.__dict__["last"] = None
                return self(*tensors, **tape.known.sizes)
            if inout:
                keep_apart(self, tensors)
            outside = machine.begin_call(name)
            try:
                if graph is not None and outside and not machine.watched():
                    graph()
                else:
                    (repeats.play if outside and tape.steps else Tape.play)(tape, every)
            except (Exception, KeyboardInterrupt) as error:
                self.abandon(error)
                raise
            machine.end_call()
            if inout:
                say_changed(self, tensors)
            return tuple(results) if many else results[0]

        return run
