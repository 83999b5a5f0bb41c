"""What `auto` becomes for a small all-reduce: algorithm, validity and buffers, over all payloads that it may have.

A call of a few rows is a matter of latencies, one of many a matter of bytes, and one module serves both: what counts is
the geometric mean of the predicted times of payloads from the largest down to the smallest, a quarter of the one before
each. In which form one travels still follows its size (plan/exchange_shape.py). All combinations are tried; a key that
is not as the rules have it must earn it (choose_transport.py). `algorithm` is up for choice only where nothing follows
the sum, since two rounds round it before what follows; `speculative` and the switch never are.
"""

from __future__ import annotations

from itertools import product
from math import exp, log

from chunkdsl.cost.constants import margin
from chunkdsl.cost.transports import text_of
from chunkdsl.cost.trials import Trials, without
from chunkdsl.ir.graph import Value
from chunkdsl.ir.policy import Policy
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.settled import Settled, Settlement

MOST_SIZES = 8
KEYS = {"algorithm": ("one_shot", "two_shot"), "validity": ("word", "flag"), "buffers": (None, 1, 2, 3)}


class ExchangeTrials(Trials):
    """The trials of one small all-reduce."""

    def bare(self, v: Value) -> Policy:
        return without(v.policy, *(key for key, values in KEYS.items() if getattr(v.policy, key) in values))

    def settle(self) -> Settlement:
        found, x = Settlement(), self.by_rule.exchange
        if x.via == "multimem":
            return found
        (v,) = self.collectives
        tried = self._tried(v)
        if tried:
            gain = 1 + margin("gain")
            us, best = min(tried, key=lambda t: t[0] * gain ** self._moved(t[1]))
            keys = [key for key in best if getattr(v.policy, key) is None]
            found.update({(v, key): told for key in keys if (told := self._settled(v, key, us, best, tried))})
        return found

    def tried(self, v: Value) -> list[tuple[float, dict[str, object]]]:
        """As of other collectives (choose_transport.py)."""
        if self.by_rule.exchange.via == "multimem":
            return []
        found = sorted(self._tried(v), key=lambda t: t[0])
        return [(us, {k: x for k, x in chosen.items() if x is not None and getattr(v.policy, k) is None})
                for us, chosen in found]  # fmt: skip

    def _tried(self, v: Value) -> list[tuple[float, dict]]:
        """(predicted time, values) of all combinations that the spec leaves room for."""
        x, bare = self.by_rule.exchange, self.bare(v)
        values = {key: tried for key, tried in KEYS.items() if getattr(bare, key) is None}
        if not {step.op for step in x.epilogue} <= {"round"}:
            values["algorithm"] = (x.algorithm,)
        tried: list[tuple[float, dict]] = []
        for chosen in (dict(zip(values, one, strict=True)) for one in product(*values.values())):
            chosen = self._whole(chosen, v)
            allowed = all(getattr(v.policy, key) in (None, value) for key, value in chosen.items())
            if allowed and chosen not in [c for _, c in tried] and (us := self.time(v, chosen, bare)) is not None:
                tried.append((us, chosen))
        return tried

    def _whole(self, chosen: dict, v: Value) -> dict:
        """With the number of buffers that the rules mean, where it is one."""
        if "buffers" not in chosen or chosen["buffers"] is not None:
            return chosen
        return chosen | {"buffers": self._simple(chosen.get("validity", v.policy.validity))}

    def _simple(self, validity: str | None) -> int | None:
        """Buffers that the rules give; None if that depends on the payload."""
        if validity not in (None, "word"):
            return 2
        return 3 if self.by_rule.exchange.rowwise else None

    def _moved(self, chosen: dict) -> int:
        """How many keys are not as the rules have them."""
        simple = {"algorithm": "one_shot", "validity": "word"}
        count = sum(chosen.get(key, value) != value for key, value in simple.items())
        return count + ("buffers" in chosen and chosen["buffers"] != self._simple(chosen.get("validity")))

    def _settled(self, v: Value, key: str, us: float, best: dict, tried: list) -> Settled | None:
        said = self.said.get((v, key))
        if said is None:
            return None
        changed = best[key] not in (None, said[0]) and text_of(best[key]) != said[1].value
        shown = text_of(best[key]) if changed else said[1].value
        others = [(t, text_of(c[key]) or self.rules[v, key][1].value) for t, c in tried if c[key] != best[key]]
        if not others:
            return None
        other, text = min(others)
        by_rule = self.time(v, {}, v.policy)
        why = self.gain(us, by_rule) if changed and by_rule else ""
        return Settled(best[key] if changed else None, shown, why, text, other / us - 1)

    def sizes_down(self) -> list[dict[str, int]]:
        """Bindings from the largest payload down."""
        found = [self.dims]
        while len(found) < MOST_SIZES:
            less = {name: self.fit(name, n // 4) for name, n in found[-1].items()}
            if less == found[-1]:
                break
            found.append(less)
        return found

    def measure(self, made: OpSchedule) -> float:
        times = [self.play(made, dims) for dims in self.sizes_down()]
        return exp(sum(map(log, times)) / len(times))

    def sized(self) -> str:
        sizes = self.sizes_down()
        spans = (f"{name} = {sizes[-1][name]} to {sizes[0][name]}" for name in self.dims)
        return f"on {self.world} x {self.gpu}, in the mean over {', '.join(spans)}" if self.dims else super().sized()
