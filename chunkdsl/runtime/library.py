"""Products that the library computes, chunk by chunk in the stream: what stands between a chunk and its call. Copied
into the module.

The library's kernels do not know of flags. A kernel of one program waits ahead of them: what follows it in the stream
sees what its acquire has made visible. Copies that it waits for are enqueued before it, and before the library's calls,
whose first use may load a kernel and block the host until the stream is idle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.device import wait_flag


@triton.jit(do_not_specialize=["word", "site", "limit", "active"])
def await_chunk(
    arrived, word, said, state, state_peers, record, site, limit, active, W: tl.constexpr, NVIDIA: tl.constexpr
):  # fmt: skip
    """What comes next in the stream reads the chunk of flag `word`. If the instance is dead, `said`, with which copy
    engines signal, falls back to the epoch before: they publish nothing more."""
    if active != 0:
        epoch = tl.load(state)
        if wait_flag(arrived + word, epoch, site, word, state, state_peers, record, limit, W, NVIDIA) == 0:
            tl.store(said, epoch - 1)


def hold_until(operation, arrived, word, site, active):
    """The main lane goes on when chunk `word` of what `arrived` speaks of is here."""
    m = operation.machine
    args = dict(
        arrived=arrived.local, word=word, said=operation.word, state=operation.state.local,
        state_peers=operation.state.table, record=operation.record, site=site, limit=operation.module.limit,
        active=active,
    )  # fmt: skip
    m.launch(await_chunk, 1, args, dict(W=m.world, NVIDIA=not m.target.startswith("gfx")), 1, 1)
