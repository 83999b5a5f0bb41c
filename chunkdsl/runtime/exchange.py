"""Host side of a small all-reduce: memory of its words, which form a payload takes, the one launch of a call.
Copied into the module.

A generated class supplies FORMS and what `Operation` asks for, `extent`, `run` and `plain`. A form is (number, most
32-bit words that a rank sends in a round or 0, slots, words that a thread takes at once, blocks as (words, warps), most
registers of a thread or 0); every number has words and epochs of its own, so calls of different sizes do not disturb
each other. Calls without rows exchange nothing and advance nothing, on every rank alike.
"""

from __future__ import annotations

import torch

from chunkdsl.runtime.arguments import cdiv
from chunkdsl.runtime.blocks import block_for, blocks_on, form_for, most_each, row_pieces, words_each
from chunkdsl.runtime.operation import Operation


class ExchangeOperation(Operation):
    INOUT, FORMS, ROWWISE, LONG_ROWS, ROUNDS = (), (), False, False, 1
    PAYLOAD, ITEM, LIMIT, RETRY = 0, 2, 0, 8
    PROGRAMS = 1024  # epochs: one for each program that a call may have

    def __init__(self, module):
        self.held = []
        super().__init__(module)
        if self.why_not is None:
            for form, *_ in self.FORMS:
                words = getattr(self, f"_words{form}")
                setattr(self, f"peers{form}", self.rotated(words))
            self.states = self.rotated(self.state)
            self.arrived = getattr(self, "_arrived", None)
            self.leaving = getattr(self, "_closed", None)

    def rotated(self, memory):
        """Every rank's address, the right neighbour's first, this rank's last: kernel arguments, not a table."""
        return tuple(memory.addresses[(self.rank + 1 + k) % self.world] for k in range(self.world))

    @classmethod
    def words_in(cls, dims):
        rows, cols = cls.extent(dims)
        return cdiv(rows * cols * cls.ITEM, 4)

    @classmethod
    def memory(cls, dims, W):
        """(name, kind, shape, dtype) of all that construction allocates for these bounds."""
        made, most = [], max(1, cls.words_in(dims))
        # Forms that differ only in how much a thread takes at once share the words and epochs of the largest one.
        for form, words, slots, wide, blocks, _ in {f[0]: f for f in cls.FORMS}.values():
            cap = cls.words_each(most, W)
            if cls.ROWWISE and cls.ROUNDS == 2:
                rows, cols = cls.extent(dims)
                spans, piece = row_pieces(cols * cls.ITEM // 4, blocks[0][0], W, wide)
                cap = max(1, rows * spans * piece)
            cap = min(cap, most_each(words, W)) if words else cap
            cap = cdiv(cap, 4) * 4  # every row begins at a multiple of 16 bytes
            dtype = torch.int64 if form == 0 else torch.int32
            made.append((f"words{form}", "symmetric", (slots * cls.ROUNDS * W, cap), dtype))
            made.append((f"epochs{form}", "local", (cls.PROGRAMS + 4,), torch.int32))
            if form >= 2:
                made.append(("arrived", "symmetric", (cls.ROUNDS * W, cls.flags_in(dims, W)), torch.int32))
            if form == 3:
                made.append(("counts", "local", (8,), torch.int32))
            if slots == 1:
                made.append(("closed", "symmetric", (W, cls.flags_in(dims, W)), torch.int32))
        return (*made, *cls.row_memory(dims))

    @classmethod
    def row_memory(cls, dims):
        """Of these what a program needs for the row that it is at, where it does not fit its registers."""
        made, (rows, cols) = [], cls.extent(dims)
        if cls.LONG_ROWS:  # sums
            made.append(("parked", "local", (max(1, min(rows, cls.PROGRAMS)), cols), torch.float32))
        if cls.ROWWISE and cls.ROUNDS == 2:  # squares of a row, in a fixed order
            shape = (max(1, min(rows, cls.PROGRAMS)), cls.FORMS[0][4][0][0] + 32)
            made.append(("added", "local", shape, torch.float32))
        return tuple(made)

    @classmethod
    def flags_in(cls, dims, W):
        """Blocks of the largest payload: flags are by block."""
        rows, _ = cls.extent(dims)
        words = cdiv(cls.words_in(dims), W if cls.ROUNDS == 2 else 1)
        return max(1, rows if cls.ROWWISE else cdiv(words, cls.FORMS[0][4][0][0]))

    def call(self, tensors, given, out, key=""):
        self.held = []  # also what a call that was refused would have settled
        return self.settle(super().call(tensors, given, out, key))

    def flops(self, dims):
        """None: it has no products."""
        return 0

    def exact(self, *tensors, **given):
        """The same bits without words: payloads gathered whole, then the same kernel. Updates in place too."""
        return self.settle(super().exact(*tensors, **given))

    def fallback(self, *tensors, **given):
        """The process group's all-reduce. Updates in place as the call does."""
        self.held = []
        return self.settle(super().fallback(*tensors, **given))

    def settle(self, value):
        """What was updated in an aligned copy goes back to the caller's tensor."""
        for tensor, used in self.held:
            tensor.copy_(used)
        self.held = []
        return value

    def bind(self, tensors, given, strict=True, outs=()):
        ready, dims = super().bind(tensors, given, strict, outs)
        names = list(self.PARAMETERS)
        pairs = zip(names, tensors, ready, strict=True)
        self.held = [(tensor, used) for name, tensor, used in pairs if name in self.INOUT and used is not tensor]
        return ready, dims

    def unfused(self, dims):
        """Beside the reasons of every op: a payload beyond the table. By global sizes alone."""
        sent = self.words_in(dims) * 4 * (self.world - 1)
        if self.why_not is None and self.LIMIT and sent > self.LIMIT:
            return f"a rank would send {sent} bytes, and above {self.LIMIT} two rounds of the library are faster"
        return super().unfused(dims)

    def counters(self):
        """Of `validity = speculative`, on this rank: blocks taken, of these mis-speculated, reads again, waits after
        the last retry, and disagreements that audits found (set `audit` to have the blocks of later calls audited)."""
        names = ("blocks", "mis_speculations", "retries", "waits", "disagreements")
        counts = getattr(self, "_counts", None)
        return {} if counts is None else dict(zip(names, counts[:5].tolist(), strict=True))

    @classmethod
    def words_each(cls, count, W, wide=1):
        """Words that a rank sends to another in a round, of a payload of `count`, `wide` at a time."""
        return words_each(count, W, cls.ROUNDS, wide)

    def form_for(self, count):
        return self.FORMS[form_for([f[1] for f in self.FORMS], self.words_each(count, self.world), self.world)]

    def variants(self, audits):
        """Every (form, block, audit) that a payload within the bounds may take: blocks grow with what is sent."""
        most = self.words_each(max(1, self.words_in(self.module.bounds)), self.world)
        found, least = [], 1
        for form in self.FORMS:
            last = min(most, most_each(form[1], self.world)) if form[1] else most
            if least > last:
                continue
            blocks = blocks_on(form[4], self.world)
            low, high = (blocks.index(block_for(blocks, n, self.machine.sms)) for n in (least, last))
            found += [(form, b, a) for b in blocks[low : high + 1] for a in audits]
            least = last + 1
        return found

    def exchange(self, kernel, fused, active, dims, payload, tensors):
        """Launch `kernel` on `payload` [rows, cols]; `tensors` are its operands and what it writes."""
        rows, cols = self.extent(dims)
        count, row = rows * cols * self.ITEM // 4, cols * self.ITEM // 4
        if active and count == 0:
            return
        if active and fused and self.module.check_calls:
            self.open(active, dims)
        every = None
        if not fused:
            words = payload.view(torch.int32).reshape(-1)
            every = self.machine.gather(words) if active else words
        chosen = self.form_for(count)
        lanes = self.words_each(count, self.world, chosen[3])
        block = block_for(blocks_on(chosen[4], self.world), lanes, self.machine.sms)
        audits = (False, True) if self.FORMS[0][0] == 3 and fused else (False,)
        early = fused and self.machine.starts_early()
        variants = [(chosen, block, self.audit)] if active else self.variants(audits)
        for (form, _, slots, wide, _, registers), (words, warps), audit in variants:
            memory = getattr(self, f"_words{form}")
            blocks = rows if self.ROWWISE else cdiv(lanes, words)
            args = dict(
                tensors,
                payload=payload.view(torch.int32),
                words=memory.local if fused else every,
                peers=getattr(self, f"peers{form}"),
                arrived=self.arrived and self.arrived.local,
                arrived_peers=self.arrived and self.rotated(self.arrived),
                closed=self.leaving and self.leaving.local,
                closed_peers=self.leaving and self.rotated(self.leaving),
                counts=getattr(self, "_counts", None),
                state=self.state.local,
                states=self.states,
                state_peers=self.state.table,
                record=self.record,
                epochs=getattr(self, f"_epochs{form}"),
                rank=self.rank,
                count=count,
                row=row,
                cap=memory.local.shape[1],
                flag_cap=(self.arrived or self.leaving).local.shape[1] if self.arrived or self.leaving else 0,
                site=0,
                limit=self.module.limit,
                active=active,
            )
            if self.LONG_ROWS:
                args["parked"] = self._parked
            if self.ROWWISE and self.ROUNDS == 2:
                args["added"] = self._added
            constants = dict(FORM=form, FUSED=fused, AUDIT=audit, W=self.world, SLOTS=slots, WIDE=wide, BLOCK=words)
            constants |= dict(NVIDIA=not self.machine.target.startswith("gfx"), PROGRAMS=self.PROGRAMS, EARLY=early)
            if registers and self.machine.target.startswith("sm_"):
                constants["maxnreg"] = registers
            programs = max(1, min(blocks, self.machine.sms, self.PROGRAMS))
            self.machine.launch(kernel, programs, args, constants, warps, 1, early)
