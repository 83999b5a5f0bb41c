"""Where the route of a collective comes from, for any world size: a plan of the spec, a plan file, a hierarchy.

A schedule holds a `Routing` and asks it for the world size that is proven, unrolled or emitted. It evaluates nothing
twice, and adds nothing to what `trace` finds.
"""

from __future__ import annotations

from collections.abc import Callable

from chunkdsl.plan.form import Form
from chunkdsl.plan.steps import Route
from chunkdsl.plan.trace import CONTRACTS, Flow, Trace, trace
from chunkdsl.plan.trace_breaches import Breach


class Routing:
    """`make(world)` gives the route for so many ranks, or the breach that says why there is none.

    contract  one of CONTRACTS      axes   names of the mesh axes it runs over, outer first
    line      of the spec           form   the parametric form, if the route has one for every world size: then no
                                           table is emitted. `why_not` says why it has none
    fetches   whether any step, at any world size, fetches
    """

    def __init__(
        self, name: str, contract: str, axes: tuple[str, ...], line: int, make: Callable[[int], Route | Breach], *,
        form: Form | None = None, why_not: str = "", fetches: bool = True,
    ) -> None:  # fmt: skip
        if contract not in CONTRACTS:
            raise ValueError(f"{contract} is no contract")
        self.name, self.contract, self.axes, self.line = name, contract, axes, line
        self.form, self.why_not, self.fetches = form, why_not, fetches
        self._make = make
        self._traces: dict[int, Trace | Breach] = {}
        self._arrivals: dict[int, tuple[tuple[int, ...], ...]] = {}

    def breaches(self, world: int) -> tuple[Breach, ...]:
        """Why the route does not keep its contract on `world` ranks; empty if it does: its proof."""
        found = self._traced(world)
        return (found,) if isinstance(found, Breach) else found.breaches

    def trace(self, world: int) -> Trace:
        """The route carried out on `world` ranks. ValueError if it has breaches there: ask for those first."""
        found = self._traced(world)
        if isinstance(found, Breach) or found.breaches:
            raise ValueError(f"{self.name} has no route for {world} ranks")
        return found

    def flows(self, rank: int, world: int) -> tuple[Flow, ...]:
        """What a rank issues, in order."""
        return self.trace(world).flows[rank]

    def parts(self, world: int) -> int:
        return self.trace(world).parts

    def arrivals(self, world: int) -> tuple[tuple[int, ...], ...]:
        """For each rank all shards of a gather in the order in which they are there whole, its own first."""
        if world not in self._arrivals:
            found = self.trace(world)
            last: list[dict[int, int]] = [{rank: -1} for rank in range(world)]
            for i, f in enumerate(found.order):
                last[f.reader][f.target] = i
            self._arrivals[world] = tuple(tuple(sorted(at, key=at.__getitem__)) for at in last)
        return self._arrivals[world]

    def _traced(self, world: int) -> Trace | Breach:
        if world not in self._traces:
            made = self._make(world)
            self._traces[world] = made if isinstance(made, Breach) else trace(made)
        return self._traces[world]
