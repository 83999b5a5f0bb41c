"""What becomes of an op when a rank fails, and how the others are told: dead waits, calls that do not agree, exceptions
inside a call, close. The outcomes are listed in docs/failures.md. Copied into the module.

It does not detect what only a later wait can find; every wait is bounded by the instance's timeout.
"""

from __future__ import annotations

import zlib
from contextlib import suppress

import torch

from chunkdsl.runtime.arguments import Arguments
from chunkdsl.runtime.device import agree_call
from chunkdsl.runtime.plain import own_memory


class Failures(Arguments):
    """Kinds in the pinned record: 1 a wait of this rank ran out, 2 a peer gave up first, 3 other sizes."""

    SITES = ()
    closed_because = ""
    meets = False  # whether ranks compare their calls

    def agreed(self, tensors, given, strict=True, outs=()):
        """`bind`. Where ranks compare their calls (check_calls, and always without a GPU, where a collective of unequal
        sizes would end the process) it is a meeting of the hosts: RuntimeError names the ranks that call with other
        sizes than rank 0 or refuse their arguments. In a captured graph the kernel `agree_call` does it."""
        machine = self.machine
        if not self.meets or self.world == 1 or machine.capturing():
            return self.bind(tensors, given, strict, outs)
        refusal = found = None
        try:
            found = self.bind(tensors, given, strict, outs)
            said = (self.NAME, tuple(sorted(found[1].items())))
        except (TypeError, ValueError) as error:
            refusal, said = error, f"refuses its arguments: {error}"
        votes = machine.vote(said)
        if refusal is not None:
            raise refusal
        for rank, vote in enumerate(votes):
            if isinstance(vote, str):
                raise RuntimeError(f"{self.NAME}: rank {rank} {vote}")
        odd = [rank for rank, vote in enumerate(votes) if vote != votes[0]]
        if odd:
            raise RuntimeError(f"{self.NAME}: ranks {odd} call with other sizes than rank 0: {votes}")
        return found

    def agree_in_kernel(self, active, dims):
        """With check_calls: hashes of the sizes travel with the call, also in a graph's replays."""
        args = dict(
            shapes=self.shapes.local, shapes_peers=self.shapes.table, agreed=self.agreed_words.local,
            agreed_peers=self.agreed_words.table, state=self.state.local, state_peers=self.state.table,
            record=self.record, rank=self.rank, shape=zlib.crc32(repr(sorted(dims.items())).encode()) >> 1,
            site=len(self.SITES) - 1, limit=self.module.limit, active=active,
        )  # fmt: skip
        shared = dict(W=self.world, NVIDIA=not self.machine.target.startswith("gfx"))
        self.machine.launch(agree_call, 1, args, shared, 1, 1)

    def abandon(self, error):
        """An exception among the launches of a fused call: this rank's part of it will not come. The op is dead here;
        the peers' waits return and name this rank."""
        self.closed_because = f"a call raised {type(error).__name__} ({error}). Build a new instance"
        self.record[4] = 4 + self.rank
        with suppress(Exception):  # what is told is the first error
            if not self.machine.capturing():
                for address in self.state.addresses:
                    self.machine.copy(address + 4, self.record.data_ptr() + 16, 4, "main")
            self.machine.end_call()

    def run_plain(self, dims, tensors):
        """The results of `plain`."""
        try:
            return [own_memory(t) for t in self.plain(dims, *tensors)]
        except (Exception, KeyboardInterrupt) as error:
            self.leave_peers(error)
            raise

    def leave_peers(self, error):
        """An exception in `plain` leaves the peers in a collective, and they would take this rank's next one for it: no
        op of this instance is called here again."""
        if self.world > 1 and not self.machine.failure:
            self.machine.failure = f"a call raised {type(error).__name__} ({error})"

    def check(self, look=False):
        """RuntimeError if a wait has run out on this rank or a peer; says where, and which ranks are missing. `look`
        also reads the word that peers set in device memory, for ranks that have not waited since (the device must be
        idle)."""
        if self.closed_because:
            raise RuntimeError(f"{self.NAME}: {self.closed_because}")
        if self.machine.failure:
            raise self.dead(self.machine.failure)
        if self.why_not is not None:
            return
        kind = self.verdict.value
        if kind == 0 and look and int(self.state.local[1]) != 0:
            kind = 2
        if kind != 0:
            raise self.dead(self.story(kind))

    def dead(self, why):
        return RuntimeError(f"{self.NAME} is dead on rank {self.rank}: {why}. Build a new instance.")

    def story(self, kind):
        """Why the op is dead: the wait, and the ranks that it waited for."""
        site, item, epoch = self.record[1:4].tolist()
        if kind == 3:
            odd = [r for r in range(self.world) if item >> (r % 31) & 1]
            return f"ranks {odd} call with other sizes than this rank (call {epoch})"
        teller = int(self.state.local[1]) - 4
        if teller >= 0:
            return f"rank {teller} raised an exception inside a call"
        waited = self.SITES[site].replace("{rank}", str(item))
        waited += "" if waited != self.SITES[site] else f", word {item}"
        where = "a peer of this rank gave up first" if kind == 2 else f"{waited}, call {epoch}"
        begun = self.machine.peek(self.state)
        behind = [r for r, calls in enumerate(begun) if (calls - begun[self.rank] + 2**31) % 2**32 < 2**31]
        if behind:
            return f"{where}; ranks {behind} have not begun this call"
        absent = self.machine.roll_call()
        return f"{where}; ranks {absent} do not answer" if absent else where

    def forget(self, reason):
        """Drop all memory; later calls say `reason`."""
        for name, value in list(vars(self).items()):
            if isinstance(value, torch.Tensor) or hasattr(value, "addresses"):
                setattr(self, name, None)
        self.closed_because, self.tapes, self.straight, self.repeats = reason, {}, {}, None
