"""An exchange -> plan: what each rank sends, takes and leaves behind, block by block.

The unit of a buffer's columns is a 32-bit word of the payload. In the word forms a signal is the word itself: whoever
sees its epoch, or no longer its empty mark, has the data. Equal blocks are grouped into at most RUNS tasks; a block
depends on the same block of the other ranks alone, so that a group stands for its members.

`speculative` without its assumption reads before it waits, as it is written; with it, a validated read counts as one
that came after the flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from chunkdsl.ir.types import evaluate
from chunkdsl.plan.exchange import Exchange, Form
from chunkdsl.plan.plan import Access, Act, Buffer, Plan, Region
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.unroll_book import Book
from chunkdsl.runtime.blocks import form_for, most_each, row_pieces, words_each

RUNS = 2
SUMS = "sums of the call"  # of whole rows in two rounds: a rank's own piece, before its row is there
ITEM = {"bf16": 2, "f16": 2, "f32": 4}
Dims = Mapping[str, int]


def payload_words(x: Exchange, dims: Dims) -> int:
    """32-bit words of the payload in a call."""
    return -(-evaluate(x.rows, dims) * evaluate(x.cols.size, dims) * ITEM[x.dtype] // 4)


def each_words(x: Exchange, words: int, world: int, wide: int = 1) -> int:
    """Words that a rank sends to another in one round (runtime/blocks.py)."""
    return words_each(words, world, 2 if x.algorithm == "two_shot" else 1, wide)


def sent_words(x: Exchange, form: Form, dims: Dims, world: int) -> int:
    """The same for a form and a call; where rows stay whole, of every row a piece of each of its spans."""
    if whole_rows(x):
        # In the switch's kernel a row is one span, however long: its block is not what limits it.
        block = max(form.blocks[0][0], row_of(x, dims) + world * form.wide) if x.vectors else form.blocks[0][0]
        spans, piece = row_pieces(row_of(x, dims), block, world, form.wide)
        return evaluate(x.rows, dims) * spans * piece
    return each_words(x, payload_words(x, dims), world, form.wide)


def whole_rows(x: Exchange) -> bool:
    """Two rounds in which a row stays with one program: every rank adds up a piece of each row."""
    return x.rowwise and x.algorithm == "two_shot"


def covered_words(x: Exchange, form: Form, dims: Dims, world: int) -> int:
    """Words of a result as the plan counts them: those of the payload, or of whole rows all pieces, one owner's behind
    another's, with their padding."""
    return sent_words(x, form, dims, world) * world if whole_rows(x) else payload_words(x, dims)


def row_of(x: Exchange, dims: Dims) -> int:
    """32-bit words of a row."""
    return evaluate(x.cols.size, dims) * ITEM[x.dtype] // 4


def row_words(x: Exchange, form: Form, bounds: Dims, world: int) -> int:
    """Words of a row of a form's buffer, for payloads up to `bounds`: what one rank sends to another, or, in the
    switch, the payload. Every row begins at a multiple of 16 bytes."""
    most = max(1, payload_words(x, bounds))
    whole = max(most, covered_words(x, form, bounds, world))  # pieces of whole rows are padded
    each = whole if x.via == "multimem" else max(1, sent_words(x, form, bounds, world))
    return -(-(min(each, most_each(form.words, world)) if form.words else each) // 4) * 4


def form_of(x: Exchange, words: int, world: int) -> Form:
    """The form that a payload takes: the first that holds it."""
    return x.forms[form_for([f.words for f in x.forms], each_words(x, words, world), world)]


def unroll_exchange(op: OpSchedule, world: int, calls: Sequence[Dims], bounds: Dims, spec: str) -> Plan:
    x, book = op.exchange, Book(op, world, bounds)
    taken: dict[str, int] = {}  # form -> calls that have taken it
    before: dict[str, int] = {}  # words that its last call sent to each rank
    for call, dims in enumerate(calls):
        words = payload_words(x, dims)
        form = form_of(x, words, world)
        taken[form.name] = epoch = taken.get(form.name, 0) + (words > 0)
        f = _Frame(op, world, call, dims, form, epoch, before.get(form.name, 0), book)
        for rank in range(world):
            begin = book.main(rank, call, "start", op.line, "call begins")
            made = f.programs(rank, begin) if words else []
            book.main(rank, call, "end", x.line, f"{x.name} ends", after=tuple(made))
            needs = [Access(Act.NEED, f.result(rank, s, 0, f.words), None, s, (1 << world) - 1) for s in f.results]
            book.main(rank, call, "end", op.line, "call ends", accesses=tuple(needs) if words else ())
        if words:
            before[form.name] = f.sent
    lanes = tuple(book.lanes.values())
    dims = tuple(tuple(sorted(c.items())) for c in calls)
    buffers = tuple(_buffers(op, world, len(calls), bounds))
    return Plan(op.name, world, dims, buffers, lanes, tuple(book.signals), tuple(book.tasks), spec)


def _buffers(op: OpSchedule, world: int, calls: int, bounds: Dims) -> Iterator[Buffer]:
    x = op.exchange
    most = max(1, *(covered_words(x, f, bounds, world) for f in x.forms))
    rounds = 2 if x.algorithm == "two_shot" else 1
    for f in memory_forms(x):
        cap = row_words(x, f, bounds, world)
        dtype = "i64" if f.name == "word" else "i32"
        yield Buffer(buffer_of(f), "symmetric", dtype, rounds if x.via == "multimem" else rounds * world, cap, f.slots)
    for s in x.stores:
        yield Buffer(f"{s.tensor} of the call", "output", "i32", 1, most, calls)
    if whole_rows(x):
        yield Buffer(SUMS, "output", "i32", 1, most, calls)


def memory_forms(x: Exchange) -> tuple[Form, ...]:
    """One form for each buffer: those that differ only in how much a thread takes at once share the largest one's."""
    return tuple({f.name: f for f in x.forms}.values())


def buffer_of(form: Form) -> str:
    """Name of the memory of a form, as the wrapper allocates it."""
    return f"words{('word', 'mark', 'flag', 'speculative').index(form.name)}"


class _Frame:
    """One call: `slot` of the words, groups of blocks as (first word, end) of what one source sends."""

    def __init__(self, op, world, call, dims, form, epoch, before, book) -> None:
        self.op, self.world, self.call, self.form, self.book = op, world, call, form, book
        self.x, self.buffer = op.exchange, buffer_of(form)
        self.slot, self.before = epoch % form.slots, before
        self.results = [f"{s.tensor} of the call" for s in self.x.stores]
        self.own_flags = form.name in ("flag", "speculative")
        self.lane = f"{self.x.name} blocks"
        self.words = covered_words(self.x, form, dims, world)
        self.sent = sent_words(self.x, form, dims, world)  # by a rank to each other one in a round
        self.runs = list(_runs(self.sent, unit_words(self.x, form, dims, self.sent)))

    def result(self, rank: int, name: str, first: int, end: int) -> Region:
        return Region(name, rank, self.call, 0, 1, first, end)

    def place(self, on: int, row: int, first: int, end: int) -> Region:
        return Region(self.buffer, on, self.slot, row, row + 1, first, end)

    def programs(self, rank: int, begin: int) -> list[int]:
        self.book.open(self.lane, False, self.x.name)
        two = self.x.algorithm == "two_shot"
        made = []
        for group, (first, end) in enumerate(self.runs):
            way = self._whole_rows if whole_rows(self.x) else self._two_shot if two else self._one_shot
            if self.x.via == "multimem":
                way = self._pushed if two else self._pulled
            made += way(rank, group, first, end, begin)
        if self.form.name == "mark" and self.before:
            made.append(self._empty(rank, begin))
        return made

    def _one_shot(self, rank: int, group: int, first: int, end: int, begin: int) -> Iterator[int]:
        peers = [(rank + 1 + k) % self.world for k in range(self.world - 1)]
        puts = tuple(self._put(p, rank, first, end, 1 << rank, first) for p in peers)
        yield self._task(rank, begin, "move", f"sends words {first}..{end}", puts, (), self._said(rank, group, peers))
        heard = tuple([self._word(rank, group, q) for q in peers])
        adds = self._sum(rank, first, end, [(q, q) for q in peers])
        label = f"adds words {first}..{end}"
        said = tuple([self._closed(p, group, rank) for p in peers]) if self.op.closing else ()
        if self.form.name == "speculative" and not self.x.assume:
            yield self._task(rank, begin, "reduce", label, adds)
            yield self._task(rank, begin, "reduce", f"validates words {first}..{end}", (), heard, said)
        else:
            yield self._task(rank, begin, "reduce", label, adds, heard, said)
        if self.op.closing:
            done = tuple([self._closed(rank, group, q) for q in peers])
            yield self._task(rank, begin, "barrier", f"waits until words {first}..{end} are read", (), done)

    def _pulled(self, rank: int, group: int, first: int, end: int, begin: int) -> Iterator[int]:
        """Payloads stay with their ranks, and every rank has the switch add up all of them."""
        peers = [(rank + 1 + k) % self.world for k in range(self.world - 1)]
        yield self._task(rank, begin, "stage", f"stages words {first}..{end}",
                         [self._put(rank, 0, first, end, 1 << rank, first)], (), self._said(rank, group, peers))
        to, name = self.result(rank, self.results[0], first, end), self.results[0]
        adds = [Access(Act.PUT, to, None, name, 1 << rank, (0, first))]
        adds += [Access(Act.ADD, to, self.place(q, 0, first, end)) for q in peers]
        yield self._task(rank, begin, "reduce", f"words {first}..{end} are added up in the switch",
                         (*adds, *self._beside(rank, first, end)), tuple([self._word(rank, group, q) for q in peers]))

    def _beside(self, rank: int, first: int, end: int) -> list[Access]:
        """What else than the first result follows from sums of all ranks' words."""
        whole = (1 << self.world) - 1
        return [Access(Act.PUT, self.result(rank, name, first, end), None, name, whole, (0, first))
                for name in self.results[1:]]  # fmt: skip

    def _pushed(self, rank: int, group: int, first: int, end: int, begin: int) -> Iterator[int]:
        """Payloads stay with their ranks; every rank has the switch add up its own piece, and store the sum at all of
        them. `first`..`end` are words of a piece."""
        piece, whole = self.sent, (1 << self.world) - 1
        peers = [(rank + 1 + k) % self.world for k in range(self.world - 1)]
        spans = [(q, q * piece + first, max(q * piece + first, min(q * piece + end, self.words)))
                 for q in range(self.world)]  # fmt: skip
        puts = [self._put(rank, 0, low, high, 1 << rank, low) for _, low, high in spans]
        yield self._task(rank, begin, "stage", f"stages words {first}..{end} of every piece", puts, (),
                         self._said(rank, group, peers))
        _, low, high = spans[rank]
        name, rows = self.results[0], whole_rows(self.x)  # a row is finished when all of it is there, own piece too
        to = self.result(rank, SUMS if rows else name, low, high)
        adds = [Access(Act.PUT, to, None, name, 1 << rank, (0, low))]
        adds += [Access(Act.ADD, to, self.place(q, 0, low, high)) for q in peers]
        sums = [self._put(q, 1, low, high, whole, low) for q in range(self.world)]
        heard = tuple([self._word(rank, group, q) for q in peers])
        added = self._task(rank, begin, "reduce", f"words {first}..{end} of its piece are added up in the switch",
                           (*adds, *sums, *([] if rows else self._beside(rank, low, high))), heard,
                           self._said(rank, group, peers, self.world))
        yield added
        taken = [span for span in spans if rows or span[0] != rank]
        copies = [Access(Act.COPY, self.result(rank, name, low, high), self.place(rank, 1, low, high))
                  for _, low, high in taken]  # fmt: skip
        copies += [made for _, low, high in taken for made in self._beside(rank, low, high)]
        finished = tuple([self._word(rank, group, q, self.world) for q in peers])
        label = "all pieces and finishes its rows" if rows else "the other pieces"
        yield self._task(rank, added if rows else begin, "reduce", f"takes words {first}..{end} of {label}", copies,
                         finished)

    def _sum(self, rank: int, first: int, end: int, rows, at: int = 0) -> tuple[Access, ...]:
        """Own addend, which is in no buffer, then those of `rows`: (row, rank)."""
        made = []
        for name in self.results:
            to = self.result(rank, name, at + first, at + end)
            made.append(Access(Act.PUT, to, None, name, 1 << rank, (0, at + first)))
            if name == self.results[0]:
                made += [Access(Act.ADD, to, self.place(rank, row, first, end)) for row, _ in rows]
            else:
                made[-1] = Access(Act.PUT, to, None, name, (1 << self.world) - 1, (0, at + first))
        return tuple(made)

    def _put(self, on: int, row: int, first: int, end: int, mask: int, origin: int) -> Access:
        return Access(Act.PUT, self.place(on, row, first, end), None, self.results[0], mask, (0, origin))

    def _empty(self, rank: int, begin: int) -> int:
        """Empties the slot of the call before, for the call after next."""
        slot = (self.slot - 1) % self.form.slots
        region = Region(self.buffer, rank, slot, 0, self._rows(), 0, self.before)
        return self._task(rank, begin, "stage", "empties the words of the call before",
                          (Access(Act.PUT, region, None, "empty"),))

    def _rows(self) -> int:
        return self.world * (2 if self.x.algorithm == "two_shot" else 1)

    def _said(self, rank: int, group: int, peers, row: int = 0) -> tuple[int, ...]:
        return tuple([self._word(p, group, rank, row) for p in peers])

    def _word(self, owner: int, group: int, source: int, row: int = 0) -> int:
        """The signal that words of `source` are on `owner`: a flag, or the words themselves."""
        flags = "arrived" if self.own_flags else self.buffer
        index = (row + source) * RUNS + group
        return self.book.signal(flags, owner, index, source, self.call, f"block {group}")

    def _closed(self, owner: int, group: int, source: int) -> int:
        return self.book.signal("closed", owner, source * RUNS + group, source, self.call, f"block {group} read")

    def _task(self, rank, begin, kind, label, accesses=(), waits=(), signals=()) -> int:
        return self.book.task(
            rank, self.lane, self.call, kind, self.x.line, label,
            tuple(accesses), (begin,), tuple(waits), tuple(signals),
        )  # fmt: skip

    def _two_shot(self, rank: int, group: int, first: int, end: int, begin: int) -> Iterator[int]:
        """Every rank adds up its own piece and sends the sum on. `first`..`end` are words of a piece."""
        piece, peers = self.sent, [(rank + 1 + k) % self.world for k in range(self.world - 1)]
        puts = [self._put(p, rank, first, end, 1 << rank, p * piece + first) for p in peers]
        yield self._task(rank, begin, "move", f"sends words {first}..{end} of every piece", puts, (),
                         self._said(rank, group, peers))
        heard = tuple([self._word(rank, group, q) for q in peers])
        stop = max(first, min(end, self.words - rank * piece))
        adds = self._sum(rank, first, stop, [(q, q) for q in peers], rank * piece)
        whole = (1 << self.world) - 1
        sums = [self._put(p, self.world + rank, first, end, whole, rank * piece + first) for p in peers]
        yield self._task(rank, begin, "reduce", f"adds words {first}..{end} of its piece", (*adds, *sums), heard,
                         self._said(rank, group, peers, self.world))
        copies = []
        for q in peers:
            stop = max(first, min(end, self.words - q * piece))
            for name in self.results:
                to = self.result(rank, name, q * piece + first, q * piece + stop)
                of = self.place(rank, self.world + q, first, stop)
                taken = Access(Act.COPY, to, of)
                made = Access(Act.PUT, to, None, name, whole, (0, q * piece + first))
                copies.append(taken if name == self.results[0] else made)
        finished = tuple([self._word(rank, group, q, self.world) for q in peers])
        yield self._task(rank, begin, "reduce", f"takes words {first}..{end} of the other pieces", copies, finished)

    def _whole_rows(self, rank: int, group: int, first: int, end: int, begin: int) -> Iterator[int]:
        """The same with rows that stay whole: what follows the sum starts when a program has all pieces of its rows."""
        piece, peers = self.sent, [(rank + 1 + k) % self.world for k in range(self.world - 1)]
        puts = [self._put(p, rank, first, end, 1 << rank, p * piece + first) for p in peers]
        yield self._task(rank, begin, "move", f"sends words {first}..{end} of every piece", puts, (),
                         self._said(rank, group, peers))
        name, low, high = self.results[0], rank * piece + first, rank * piece + end
        sums = self.result(rank, SUMS, low, high)
        adds = [Access(Act.PUT, sums, None, name, 1 << rank, (0, low))]
        adds += [Access(Act.ADD, sums, self.place(rank, q, first, end)) for q in peers]
        sent = [Access(Act.COPY, self.place(p, self.world + rank, first, end), sums) for p in peers]
        heard = tuple([self._word(rank, group, q) for q in peers])
        added = self._task(rank, begin, "reduce", f"adds words {first}..{end} of its piece", (*adds, *sent), heard,
                           self._said(rank, group, peers, self.world))
        yield added
        made, whole = [Access(Act.COPY, self.result(rank, name, low, high), sums)], (1 << self.world) - 1
        for q in peers:
            to = self.result(rank, name, q * piece + first, q * piece + end)
            made.append(Access(Act.COPY, to, self.place(rank, self.world + q, first, end)))
        for other in self.results[1:]:
            for q in range(self.world):
                low, high = q * piece + first, q * piece + end
                made.append(Access(Act.PUT, self.result(rank, other, low, high), None, other, whole, (0, low)))
        finished = tuple([self._word(rank, group, q, self.world) for q in peers])
        yield self._task(rank, added, "reduce", f"takes words {first}..{end} of all pieces and finishes its rows", made,
                         finished, tuple([self._closed(p, group, rank) for p in peers]) if self.op.closing else ())
        if self.op.closing:
            done = tuple([self._closed(rank, group, q) for q in peers])
            yield self._task(rank, begin, "barrier", f"waits until words {first}..{end} are read", (), done)


def unit_words(x: Exchange, form: Form, dims: Dims, sent: int) -> int:
    """Words that a rank sends of the smallest block in a call that takes `form`."""
    if whole_rows(x):
        return max(1, sent // max(1, evaluate(x.rows, dims)))
    return max(1, row_of(x, dims)) if x.rowwise else form.blocks[0][0]


def _runs(words: int, block: int) -> Iterator[tuple[int, int]]:
    """At most RUNS groups of whole blocks: the first block, and those after it."""
    blocks = -(-words // block)
    cuts = sorted({0, 1, blocks} & set(range(blocks + 1)))
    for a, b in pairwise(cuts):
        yield a * block, min(b * block, words)
