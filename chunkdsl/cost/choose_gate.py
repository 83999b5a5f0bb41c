"""What `fuse_from` becomes: from which size on calls run fused, for every world size that a module is likely to have.

At each size a fused call is held against the library's way (baseline.py). The library must win by the margin by which
predictions have been wrong (`gate` of data/choices.toml): what was measured as faster is not switched off because a
prediction errs. The gate is the one under which all sizes together are fastest then, in the geometric mean; it may be
`never`.

Calls outside of CUDA graphs have the same gate: a call that comes again is started by a graph of the instance and takes
less of the host's time than the library's calls do (recorded rows of tests/bench), so that there it wins by no less.
"""

from __future__ import annotations

from itertools import accumulate, product
from math import log

from chunkdsl.check.worlds import misfit, route_breaches, shares_in
from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.constants import margin
from chunkdsl.cost.trials import COLLECTIVES, LARGEST_PLAY, Trials
from chunkdsl.ir.meshes import World, in_order, route_world, scope, sizes
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.ir.types import DimRef
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.settled import Gate, Settled
from chunkdsl.plan.summary import gate_text

MOST_TASKS = 12_000  # of all calls that are played out for one number of ranks: else fewer sizes are


def choose_gate(trials: Trials, made: OpSchedule) -> Settled | None:
    """None where the spec says it, no gate can be written, or nothing is known about times, as of the switch.
    `made`: the op with everything else settled."""
    if made.exchange and made.exchange.via == "multimem":
        return None
    values = values_of(trials.op)
    if any(v.policy.fuse_from or v.policy.fallback not in (None, "nccl") for v in values):
        return None
    rows = next((v.type.shape[0] for v in values if v.kind in COLLECTIVES), None)
    dim = rows.name if isinstance(rows, DimRef) and rows.name in trials.ranges else ""
    if not dim and not isinstance(rows, int):
        return None  # a size that is worked out from others: no gate along it can be written
    worlds = _worlds(trials, made)
    gates = {world: found for world in worlds if (found := _Gates(trials, made, world, dim)).sizes}
    here = gates.get(worlds[-1])
    if here is None:
        return trials.too_large(trials.tasks(made, trials.dims))
    gate = Gate(FuseFrom(0), "nccl")
    for world, found in gates.items():
        if found.best != gate.at(world):
            gate = Gate(here.best, "nccl", (*gate.by_world, (world, found.best)))
    gate = Gate(here.best, "nccl", gate.by_world)
    return Settled(gate, gate_text(here.best), here.why(), gate_text(here.other), here.margin)


def _worlds(trials: Trials, made: OpSchedule) -> list[World]:
    """Powers of two of each axis up to what the mesh declares, which is the last one. An axis that the op does not run
    over, and that cuts nothing of it, counts as one rank."""
    mesh = trials.made.mesh
    matters = {*made.over, *(s.axis for s in shares_in(made))} or {a.name for a in mesh.axes}
    last = [n if a.name in matters else 1 for a, n in zip(mesh.axes, sizes(trials.made.world), strict=True)]
    found = product(*([1 << i for i in range(n.bit_length()) if 1 << i < n] + [n] for n in last))
    found = [w if len(w) > 1 else w[0] for w in found]
    fits = (w for w in in_order(found) if w == found[-1] or not (
        scope(mesh, made.over, w) == 1 or misfit(trials.made, made, w)
        or route_breaches(made, route_world(mesh, made.over, w))))  # fmt: skip
    return list(fits)


class _Gates:
    """All gates of one world size, `sizes` ascending. `best` is the one to take, `other` the next best, which is slower
    by `margin` where the two differ."""

    def __init__(self, trials: Trials, made: OpSchedule, world: World, dim: str) -> None:
        self.trials, self.dim, self.ranks = trials, dim, trials.scene(world).ranks
        self.every = every = trials.sizes(dim) if dim else [0]
        calls = {n: {**trials.dims, **({dim: n} if dim else {})} for n in every}
        tasks = {n: trials.tasks(made, calls[n], world) for n in every}
        self.sizes = [n for n in every if tasks[n] <= LARGEST_PLAY]
        while sum(tasks[n] for n in self.sizes) > MOST_TASKS and len(self.sizes) > 2:
            self.sizes = self.sizes[::-1][::2][::-1]  # every other one, up to the largest
        if not self.sizes:
            return
        self.fused = [trials.play(made, calls[n], world) for n in self.sizes]
        at = trials.scene(world)
        self.library = [
            sum(s.us for s in baseline(made, at.ranks, calls[n] | at.axes, at.machine)) for n in self.sizes
        ]
        lead = [log(f / (a * (1 + margin("gate")))) for f, a in zip(self.fused, self.library, strict=True)]
        won = list(accumulate(lead, initial=0.0))  # by the gate in front of size i: all below it run unfused
        best = max(range(len(won)), key=lambda i: (won[i], -i))
        near = [i for i in (best - 1, best + 1) if 0 <= i < len(won)]
        other = max(near, key=lambda i: (won[i], -i))
        self.best, self.other = self._gate(best), self._gate(other)
        i = min(best, other)  # the size that the two treat differently
        self.margin = self.library[i] / self.fused[i] - 1 if other > best else self.fused[i] / self.library[i] - 1

    def _gate(self, i: int) -> FuseFrom:
        """Closed for the first `i` sizes, and open for all that lie above them, played out or not."""
        if i == len(self.sizes):
            return FuseFrom(None)
        return FuseFrom(self.every[self.every.index(self.sizes[i - 1]) + 1], self.dim) if i else FuseFrom(0)

    def why(self) -> str:
        on, safe = f"on {self.ranks} x {self.trials.gpu}", f"by {margin('gate'):.0%} or more"
        if self.best.count is None:
            return f"predicted slower than the library {safe} at every size {on}"
        if self.best.count:
            return f"predicted slower than the library {safe} below {on}"
        least = min(a / f for f, a in zip(self.fused, self.library, strict=True)) - 1
        return f"predicted faster at every size {on}" if least >= 0 else f"not slower {safe} at any size {on}"
