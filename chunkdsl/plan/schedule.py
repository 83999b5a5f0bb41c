"""The schedule of an op: parametric in world size, rank, step and run-time dims. Templates read this and nothing else.

An op is a list of launches in stream order. Every launch runs tiles; a tile reads operands (some guarded by
arrival flags), computes in f32 and stores to a destination (which may live on other ranks and be signalled chunk
by chunk). Beside its tiles a launch may run moves: pieces of chunks carried between ranks. Copy-engine moves are
not part of a launch; the wrapper enqueues them on a lane.

Rows. The row dim of M elements is cut into W shards of S = max(1, ceil(M / W)) rows, a shard into
C = ceil(S / chunk) chunks and ceil(S / BM) row blocks, the same numbers on every rank: short and empty shards have
chunks and blocks without rows, which wait and signal like the others. Communication buffers keep a shard every
`stride` rows, S rounded up to `pad`, so that no tile reads into a shard that is still arriving.
A zigzag or cyclic shard (`layout`, ir/layouts) is contiguous in parameters, results and communication buffers: chunks
and transfers are as ever. In what has rows in the global order ("plain"), each row of a tile has a place of its own.

Flags guard content: the word (shard, chunk) of `arrived` says that these rows are here, whatever the route. The
consumer therefore needs no route arithmetic, and the producer of a region is found without solving for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkdsl.ir.graph import Gradient
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.meshes import declared
from chunkdsl.ir.policy import ChunkSize
from chunkdsl.ir.types import DimRange, Mesh, SymSize
from chunkdsl.plan.ahead import Ahead
from chunkdsl.plan.body import KernelBody
from chunkdsl.plan.extents import Deal, Extent, OverRows, Relay, Result
from chunkdsl.plan.kinds import kind_of
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.settled import Choice, Gate, Tuning
from chunkdsl.record import record

if TYPE_CHECKING:
    from chunkdsl.plan.exchange import Exchange
    from chunkdsl.plan.routing import Routing


@record
class Parameter:
    """A tensor that the caller passes: local shape, dtype, and its placement on each mesh axis, spelled out."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    placements: tuple[str, ...] = ()


@record
class Buffer:
    """Memory of the instance, `groups` x stride rows of `cols` for each of `slots`.

    kind `symmetric` or `local`. groups "world": one padded shard for each rank; "whole": the whole row dim, unpadded;
    "world_whole": the whole row dim for each rank; "shard": one padded shard; "places": one padded shard for each place
    of what arrives along `routing`, the route of a sum.
    """

    name: str
    kind: str
    dtype: str
    groups: str
    rows: SymSize
    cols: Extent
    slots: int = 1
    layout: Layout = CONTIGUOUS
    routing: Routing | None = None


@record
class Flags:
    """Epoch words, `per` "chunk": one for each (rank or shard, chunk), "rank": one for each rank, or "pair" (counters):
    one for each (rank, rank or shard, chunk). kind symmetric (peers write it) or local (programs of this rank do). With
    `routing`, the route of a sum, places of what arrives along it instead of ranks or shards."""

    name: str
    kind: str
    per: str
    rows: SymSize
    chunk: ChunkSize | None = None
    whole: bool = False  # chunks of the whole row dim, not of a shard
    layout: Layout = CONTIGUOUS
    routing: Routing | None = None


@record
class Operand:
    """What a tile reads. role: a, b, row (vector over columns), column, full (same shape as the tile), parts (a stage
    of partial sums); at (contracted over its rows) and fold (added up over its rows) of launches over rows.
    layout of its rows: plain (shard * S + r), padded (shard * stride + r, by slot),
    block (r, by slot), own (r). `transposed`: b is [N, K]. `pick`: index of a leading dimension."""

    name: str
    role: str
    dtype: str
    source: str  # parameter, result or buffer
    layout: str = "plain"
    transposed: bool = False
    pick: int | None = None
    arrived: str | None = None  # flags that guard it


@record
class Instruction:
    """One step of the epilogue, in f32: target = op(args). Arguments are targets, operand names or numbers.
    op: load, const, add, sub, mul, div, neg, gelu, relu, silu, tanh, round (attr: dtype), rms_norm (x, g, eps)."""

    target: str
    op: str
    args: tuple[str | int | float, ...]


@record
class Product:
    """acc += a @ b for one b."""

    accumulator: str
    b: Operand


@record
class Sum:
    """How a reduce launch adds: sources ascending, or in ring order with `wire` rounding at each hop.
    `side` pull: the parts lie on the sources. `own_here`: the own addend is there by stream order, without a flag."""

    accumulator: str
    parts: Operand
    ring: bool
    side: str
    wire: str
    routing: Routing | None = None  # adds what the plan brings, after the own addend and in the plan's order
    own_here: bool = False


@record
class Fold:
    """accumulator = the sum of an operand's rows: [rows, n] -> [n]."""

    accumulator: str
    operand: Operand


@record
class Destination:
    """Where a tile's value goes.

    local      buffer, layout plain or own; no signal
    push       stage of the shard's owner (`everyone` False) or of every rank (True), signalled chunk by chunk
    publish    this rank's own symmetric partials, chunk flags to the readers (pull)
    hand_over  this rank's partials, or the blocks that a `deal` has for others, with chunk flags: moves carry them on,
               or fetch them. Its own shard or block goes to `stage` directly. Of a `library` product without flags: a
               copy engine carries each chunk on, in stream order
    broadcast  padded buffer of every rank, flags (own shard, chunk) there
    deal   the buffer of the rank whose row shard (onto rows) or column shard it is, at this rank's place there
    """

    kind: str
    buffer: str
    dtype: str
    layout: str = "plain"
    arrived: str | None = None
    done: str | None = None
    stage: str | None = None  # hand_over
    counters: str | None = None
    via: str = "ldst"
    everyone: bool = False
    deal: Deal | None = None


@record
class Moves:
    """Chunks carried by programs of the launch (or by a copy lane: via copy_engine).

    kind gather: own shard -> peers' `buffer`, from its place in that (`source`) or from where the caller has it
    (`source` a parameter: copies alone). kind scatter: partials for a shard -> its owner's stage.
    kind deal: the part of `source` (of the operand, of its staged copy if others read it, or of what the launch's tiles
    hand over) that is another's -> `buffer`.
    route walk of peers (None: ring, or the `routing` of a plan, which also says who sends and who fetches).
    place own_sms (programs > 0) or co_located (0). otherwise: of a plan some of whose steps go by tma, what others do.
    """

    name: str
    kind: str
    via: str
    side: str
    walk: Walk | None
    programs: int
    source: str
    buffer: str
    dtype: str
    cols: Extent
    arrived: str
    ready: str | None = None  # pull: peers have staged
    done: str | None = None  # the tiles of the launch have made a chunk
    counters: str | None = None
    wire: str = ""
    line: int = 0
    routing: Routing | None = None
    deal: Deal | None = None
    otherwise: str = ""
    relay: Relay | None = None  # of a deal along a plan

    @property
    def ring(self) -> bool:
        return self.walk is None and self.routing is None

    @property
    def leaving(self) -> bool:
        """Do they carry what the tiles of their launch make? Else what comes for these."""
        return self.done is not None or (self.kind == "scatter" and self.via == "copy_engine")


@record
class Staging:
    """Copy of this rank's shard of `source` into its own place of a gathered buffer, before anything is sent. With an
    deal: of the part that it keeps, and of all of it to `sent`, where there is one. Where `OpSchedule.stays` has the
    buffer, only `exact` makes the copy."""

    name: str
    source: str
    buffer: str
    dtype: str
    cols: Extent
    rows: SymSize
    ready: str | None
    wait_all: bool  # an entry barrier: copy engines cannot wait
    line: int
    deal: Deal | None = None
    sent: str | None = None


@record
class Tiling:
    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    piece_rows: int
    piece_cols: int


CROWD = 8  # of four warps: half of the threads that a multiprocessor of 2020 and later holds


@record
class Launch:
    """`space`: all (W shards in `walk` order), own (this rank's), whole (one shard), columns (own rows of W column
    shards in `walk` order). With `visits` the order is that in which this routing brings them, or takes them along.
    `from_every`: tiles wait for every rank's chunk. `why_triton`: why its tiles are the Triton kernel's on every target
    ("" if specialised warps can compute them; see tile_kernels.py). `library`: its product is the library's, a call
    for each chunk that arrives or leaves, on the stream, one after the other: its tiles. `interleaved`: its tiles go
    through all shards in bands of the rows of an `out_chunk`, in each in `walk` order. `beside`: it starts once all
    programs of the launch ahead run, and waits for what these make by flags, not for their end. `within`: the product
    whose own tiles make its rows, each once the others' addends are here; it runs by itself in `exact`."""

    name: str
    line: int
    text: str  # the statement, for comments
    space: str
    rows: SymSize
    cols: Extent
    walk: Walk
    chunk: ChunkSize | None
    chunk_flags: str | None  # the flags whose chunks the tiles wait for
    tiling: Tiling
    a: Operand | None
    products: tuple[Product, ...]
    depth: Extent | None  # K
    sums: Sum | None
    operands: tuple[Operand, ...]
    epilogue: tuple[Instruction, ...]
    value: str  # the instruction target that is stored
    destination: Destination
    out_chunk: ChunkSize | None  # chunks that the destination signals
    moves: tuple[Moves, ...]
    staging: Staging | None = None
    visits: Routing | None = None
    over: OverRows | None = None
    fold: Fold | None = None
    from_every: bool = False
    body: KernelBody | None = None
    layout: Layout = CONTIGUOUS  # of the shards of `rows` that its tiles go through
    ahead: Ahead | None = None
    why_triton: str = "nobody has decided"
    library: bool = False
    interleaved: bool = False
    beside: bool = False
    within: str | None = None

    @property
    def warps(self) -> bool:
        """Have its tiles a kernel of specialised warps beside the Triton kernel?"""
        return not self.why_triton

    @property
    def sliced(self) -> bool:
        """May a program take the rows of several tiles at once, with one wait and one signal for all of them?"""
        return self.sums is not None and self.beside

    @property
    def crowd(self) -> int:
        """Programs of a multiprocessor: many of tiles that only read, add and store, and wait for no other tile of the
        launch, as one alone would wait for memory most of the time."""
        return 1 if self.moves or kind_of(self) != "elements" else CROWD

    @property
    def rounds(self) -> bool:
        """Do its tiles walk gathered rows shard by shard, and wait for each in their loop?"""
        walked = self.over is not None or (self.ahead is not None and self.ahead.onto == "depth")
        return walked and self.chunk_flags is not None

    @property
    def other_rows(self) -> bool:
        """Does its gather carry other rows than those of its result?"""
        return self.rounds or self.ahead is not None

    @property
    def leaving(self) -> bool:
        """Are its tiles in the order in which `visits` takes along what they make? Else in that of what it brings."""
        return any(m.leaving and m.routing is self.visits for m in self.moves)

    @property
    def gathered(self) -> Extent:
        """Rows of what its staging and its gather carry. `rounds` contract them, and `rows` are then the result's."""
        if self.ahead:
            return Extent(self.ahead.rows, True)
        return Extent(self.over.rows, True) if self.rounds else Extent(self.rows, True, self.layout)

    @property
    def column_shards(self) -> Extent | None:
        """The columns that its tiles go through shard by shard, if they do."""
        if self.ahead:
            return Extent(self.ahead.rows, True) if self.ahead.onto == "columns" else None
        return self.destination.deal.cols if self.space == "columns" else None

    @property
    def by_shards(self) -> bool:
        """Do its tiles go through the shards of all ranks, of rows or of columns, in `walk` order?"""
        return self.space == "all" or self.column_shards is not None

    @property
    def reach(self) -> int:
        """Rows that a tile loads at once of a gathered buffer, whose shards are padded to multiples of it."""
        read = 0 if self.ahead is None else self.tiling.bn if self.ahead.onto == "columns" else self.tiling.bk
        return max(self.tiling.bm, read)


@record
class OpSchedule:
    name: str
    line: int
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    buffers: tuple[Buffer, ...]
    flags: tuple[Flags, ...]
    counters: tuple[Flags, ...]
    launches: tuple[Launch, ...]
    slots: int
    closing: bool
    pad: int
    gate: Gate
    choices: tuple[Choice, ...]
    over: tuple[str, ...] = ()  # on a mesh of two axes: those that it communicates over, whose ranks it counts
    exchange: Exchange | None = None  # instead of launches
    updates: tuple[str, ...] = ()  # parameters that the call updates in place

    @property
    def nested(self) -> bool:
        """It communicates over two axes together, which cut shards one after the other."""
        return len(self.over) > 1

    @property
    def stays(self) -> dict[str, str]:
        """Gathered buffers whose own shard stays in a parameter, where copies and tiles take it (lower/in_place.py)."""
        moves = (m for n in self.launches for m in n.moves)
        return {m.buffer: m.source for m in moves if m.kind == "gather" and m.source != m.buffer}


@record
class Schedule:
    """All ops of a file. `ranges` are the run-time dims."""

    path: str
    digest: str  # sha256 of the spec text and of the plan files that it brings in
    mesh: Mesh
    ranges: tuple[DimRange, ...]
    ops: tuple[OpSchedule, ...]
    gradients: tuple[Gradient, ...] = ()
    tuning: Tuning | None = None  # what `auto` became by

    @property
    def world(self) -> int | tuple[int, ...]:
        """The world size that the mesh declares (ir/meshes)."""
        return declared(self.mesh)

    def links_of(self, op: OpSchedule) -> tuple[str | None, ...]:
        """The links of the axes that an op communicates over, outer first."""
        return tuple(a.link for a in self.mesh.axes if not op.over or a.name in op.over) or (None,)
