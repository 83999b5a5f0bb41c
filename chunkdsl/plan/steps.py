"""A route written out: which rank moves which part of which shard where, in which order. For one world size.

What a plan of a spec, an imported one and a hierarchical route become before they are held against their contract and
carried out. Nothing here knows of rows, chunks, signals or kernels: those follow from the op that takes the route.

Ranks and shards are numbered over all axes of the route, outer axis first (row-major). What a step moves is what the
steps with a smaller `when` have left in that piece; a piece that no step has written holds the rank's own input.
"""

from __future__ import annotations

from chunkdsl.record import record


@record
class Piece:
    """Part `part` of `parts` of a shard: that many equal numbers of its chunks, in order; with as many chunks as parts,
    rows [part * ceil(S / parts), ...) of its S rows, cut at its end.

    What `shard` numbers depends on the contract. all_gather: whose input it is; a rank's own input is the shard of its
    number. reduce_scatter, all_reduce: a place in the result; a rank's input has all of them. all_to_all: in a rank's
    input, the source of a step, who it is for; in its result, the target, who it is from; from the number of ranks on,
    places of its relay, which hold a block that goes on, one each."""

    shard: int
    part: int = 0
    parts: int = 1


@record
class Step:
    """One transfer, issued by the rank that lists it.

    action "send": `source` here to `target` on `peer`. "fetch": `source` on `peer` to `target` here. `adding`: the
    target becomes its value plus the source's, else the source's. `when` orders steps of all ranks: positions and loop
    values from the outside in, compared like tuples. Steps of one rank and one `lane` follow one another; those of
    different lanes may run side by side. `line` of the spec or file; `named`: the loop variables and `let`s in force,
    for counterexamples. `via` and `chunk`: what `with` on the step says, None for what the op says."""

    action: str
    source: Piece
    target: Piece
    peer: int
    adding: bool = False
    when: tuple[int, ...] = ()
    lane: int = 0
    line: int = 0
    named: tuple[tuple[str, int], ...] = ()
    via: str | None = None
    chunk: object = None


@record
class Route:
    """The steps of every rank. `axes`: the sizes of the mesh axes it runs over, outer first; `contract`: all_gather,
    reduce_scatter, all_reduce or all_to_all."""

    name: str
    contract: str
    axes: tuple[int, ...]
    steps: tuple[tuple[Step, ...], ...]

    @property
    def world(self) -> int:
        return len(self.steps)
