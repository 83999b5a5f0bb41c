"""What `fuse_from` becomes: from which size on calls run fused, for every world size that a module is likely to have.

At each size a fused call is held against the library's way (baseline.py). The library must win by the margin by which
predictions have been wrong (`gate` of data/choices.toml): what was measured as faster is not switched off because a
prediction errs. The gate is the one under which all sizes together are fastest then, in the geometric mean; it may be
`never`.
"""

from __future__ import annotations

from itertools import accumulate
from math import log

from chunkdsl.check.worlds import misfit, route_breaches
from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.constants import margin
from chunkdsl.cost.trials import COLLECTIVES, LARGEST_PLAY, Trials
from chunkdsl.ir.meshes import route_world
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.ir.types import DimRef
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.settled import Gate, Settled
from chunkdsl.plan.summary import gate_text

MOST_TASKS = 12_000  # of all calls that are played out for one number of ranks: else fewer sizes are


def choose_gate(trials: Trials, made: OpSchedule) -> Settled | None:
    """None where the spec says it, or no gate can be written. `made`: the op with everything else settled."""
    values = values_of(trials.op)
    if any(v.policy.fuse_from or v.policy.fallback not in (None, "nccl") for v in values):
        return None
    rows = next((v.type.shape[0] for v in values if v.kind in COLLECTIVES), None)
    dim = rows.name if isinstance(rows, DimRef) and rows.name in trials.ranges else ""
    if not dim and not isinstance(rows, int):
        return None  # a size that is worked out from others: no gate along it can be written
    gates = {world: found for world in _worlds(trials, made) if (found := _Gates(trials, made, world, dim)).sizes}
    here = gates.get(trials.world)
    if here is None:
        return trials.too_large(trials.tasks(made, trials.dims))
    by_world: list[tuple[int, FuseFrom]] = []
    for world, found in sorted(gates.items()):
        if found.best != (by_world[-1][1] if by_world else FuseFrom(0)):
            by_world.append((world, found.best))
    gate = Gate(here.best, "nccl", tuple(by_world))
    return Settled(gate, gate_text(here.best), here.why(), gate_text(here.other), here.margin)


def _worlds(trials: Trials, made: OpSchedule) -> list[int]:
    """Powers of two up to what the mesh declares, which is the last one; over both axes of a mesh that one alone."""
    mesh, last = trials.made.mesh, trials.world
    found = [1 << i for i in range(1, last.bit_length()) if 1 << i < last] if len(mesh.axes) < 2 else []
    fits = (w for w in found if not misfit(trials.made, made, w)
            and not route_breaches(made, route_world(mesh, made.over, w)))  # fmt: skip
    return [*fits, last]


class _Gates:
    """All gates of one world size, `sizes` ascending. `best` is the one to take, `other` the next best, which is slower
    by `margin` where the two differ."""

    def __init__(self, trials: Trials, made: OpSchedule, world: int, dim: str) -> None:
        self.trials, self.dim, self.world = trials, dim, world
        self.every = every = trials.sizes(dim) if dim else [0]
        calls = {n: {**trials.dims, **({dim: n} if dim else {})} for n in every}
        tasks = {n: trials.tasks(made, calls[n], world) for n in every}
        self.sizes = [n for n in every if tasks[n] <= LARGEST_PLAY]
        while sum(tasks[n] for n in self.sizes) > MOST_TASKS and len(self.sizes) > 2:
            self.sizes = self.sizes[::-1][::2][::-1]  # every other one, up to the largest
        if not self.sizes:
            return
        self.fused = [trials.play(made, calls[n], world) for n in self.sizes]
        self.library = [
            sum(stage.us for stage in baseline(made, world, calls[n] | trials.axes, trials.machine)) for n in self.sizes
        ]
        lead = [log(f / (a * (1 + margin("gate")))) for f, a in zip(self.fused, self.library, strict=True)]
        won = list(accumulate(lead, initial=0.0))  # by the gate in front of size i: all below it run unfused
        at = max(range(len(won)), key=lambda i: (won[i], -i))
        near = [i for i in (at - 1, at + 1) if 0 <= i < len(won)]
        other = max(near, key=lambda i: (won[i], -i))
        self.at, self.best, self.other = at, self._gate(at), self._gate(other)
        i = min(at, other)  # the size that the two treat differently
        self.margin = self.library[i] / self.fused[i] - 1 if other > at else self.fused[i] / self.library[i] - 1

    def _gate(self, i: int) -> FuseFrom:
        """Closed for the first `i` sizes, and open for all that lie above them, played out or not."""
        if i == len(self.sizes):
            return FuseFrom(None)
        return FuseFrom(self.every[self.every.index(self.sizes[i - 1]) + 1], self.dim) if i else FuseFrom(0)

    def why(self) -> str:
        on, safe = f"on {self.world} x {self.trials.gpu}", f"by {margin('gate'):.0%} or more"
        if self.best.count is None:
            return f"predicted slower than the library {safe} at every size {on}"
        if self.best.count:
            return f"predicted slower than the library {safe} below {on}"
        least = min(a / f for f, a in zip(self.fused, self.library, strict=True)) - 1
        return f"predicted faster at every size {on}" if least >= 0 else f"not slower {safe} at any size {on}"
