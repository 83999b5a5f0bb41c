"""What `auto` becomes for a small all-reduce: algorithm, validity and buffers, over all payloads that it may have.

A call of a few rows is a matter of latencies, one of many a matter of bytes, and one module serves both: what counts is
the geometric mean of the predicted times of payloads from the largest down to the smallest, halved each time. In which
form one travels still follows its size (plan/exchange_shape.py). `algorithm` is up for choice only where nothing
follows the sum, since two rounds round it before what follows; `speculative` and the switch never are.
"""

from __future__ import annotations

from math import exp, log

from chunkdsl.cost.trials import Found, Trials
from chunkdsl.ir.graph import Value
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.schedule import OpSchedule

MOST_SIZES = 12


class ExchangeTrials(Trials):
    def settle(self) -> Found:
        x = self.by_rule.exchange
        if x.via == "multimem":
            return {}
        v = next(v for v in values_of(self.op) if v.kind == "all_reduce")
        if v.policy.algorithm is None and {step.op for step in x.epilogue} <= {"round"}:
            self._one(v, "algorithm", [("one_shot", "one_shot"), ("two_shot", "two_shot")], None)
        if v.policy.validity is None:
            self._one(v, "validity", [("word", "word"), ("flag", "flag")], None)
        if v.policy.buffers is None:
            flags = "flag" in (v.policy.validity, getattr(self.found.get((v, "validity")), "value", None))
            self._one(v, "buffers", [(n, str(n)) for n in ((1, 2) if flags else (1, 3))], None)
        self._gate()
        return self.found

    def _where(self, v: Value) -> str:
        return f"{self.op.name}: all_reduce"

    def _sizes(self) -> list[dict[str, int]]:
        """Bindings from the largest down."""
        found = [self.dims]
        while len(found) < MOST_SIZES:
            less = {name: self.fit(name, n // 2) for name, n in found[-1].items()}
            if less == found[-1]:
                break
            found.append(less)
        return found

    def _time(self, made: OpSchedule) -> float:
        times = [self._play(made, dims) for dims in self._sizes()]
        return exp(sum(map(log, times)) / len(times))

    def _sized(self) -> str:
        sizes = self._sizes()
        spans = (f"{name} = {sizes[-1][name]} to {sizes[0][name]}" for name in self.dims)
        return f"on {self.world} x {self.gpu}, in the mean over {', '.join(spans)}" if self.dims else super()._sized()
