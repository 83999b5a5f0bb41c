"""Faults of the device helpers that are copied into a module."""

from __future__ import annotations

from mutant_faults import ALWAYS_ALIVE, EITHER, LOG, SILENT, SIM, Edit, Fault, in_module

HELPER = "helper"
SET = 'tl.atomic_xchg(flag, epoch, mask=live != 0, sem="release", scope="sys")'
ARRIVE = '    tl.debug_barrier()\n    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")'
POLL = 'seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")'
CLOSE_WAIT = "wait_flag(closed + peer, epoch, site, peer, state, state_peers, record, limit, W, NVIDIA)"

FAULTS = (
    # ---- order of tiles
    Fault(
        "the last band is as low as the others",
        "scatter_interleaved",
        "row blocks that are left over are not its own",
        HELPER,
        EITHER,
        in_module("tl.where(band == bands - 1, blocks - first, together)", "together"),
        run={"world": 2, "calls": (150, 40)},
    ),
    # ---- flags
    Fault(
        "relaxed flag",
        "gather_push",
        "the signal is no release",
        HELPER,
        SIM,
        in_module(SET, SET.replace("release", "relaxed")),
    ),
    Fault(
        "flag at gpu scope",
        "gather_push",
        "a peer may never see it",
        HELPER,
        EITHER,
        in_module(SET, SET.replace("sys", "gpu")),
    ),
    Fault(
        "relaxed wait",
        "gather_push",
        "the wait is no acquire",
        HELPER,
        SIM,
        in_module(POLL, POLL.replace("acquire", "relaxed"), 2),
    ),
    Fault(
        "wait at gpu scope",
        "gather_push",
        "a peer's signal may never be seen",
        HELPER,
        EITHER,
        in_module(POLL, POLL.replace("sys", "gpu"), 2),
    ),
    Fault(
        "one poll",
        "gather_push",
        "a wait that gives up after a look",
        HELPER,
        ("timeout",),
        in_module("while (seen - epoch < 0) & (dead == 0):", "while (seen - epoch < 0) & (dead != 0):"),
    ),
    Fault(
        "wait for the call before",
        "scatter_push",
        "epoch off by one",
        HELPER,
        SIM,
        in_module("    if seen - epoch < 0:\n        start", "    epoch -= 1\n    if seen - epoch < 0:\n        start"),
        run={"slow": 2},
    ),
    Fault(
        "equality of epochs",
        "scatter_push",
        "a flag that is a call ahead does not count",
        HELPER,
        SIM,
        in_module("seen - epoch < 0", "seen != epoch", 3),
        run={"calls": (2, 2, 2, 2), "slow": 1},
    ),
    Fault(
        "no CTA barrier before the release",
        "gather_push",
        "one thread signals for all",
        HELPER,
        SIM,
        (
            Edit("    tl.debug_barrier()\n    tl.atomic_xchg(flag", "    tl.atomic_xchg(flag"),
            Edit(ARRIVE, ARRIVE.replace("    tl.debug_barrier()\n", "")),
        ),
    ),
    Fault(
        "no CTA barrier before the counter",
        "scatter_push",
        "one thread counts for all",
        HELPER,
        SIM,
        in_module(ARRIVE, ARRIVE.replace("    tl.debug_barrier()\n", "")),
    ),
    Fault(
        "bulk wait for reads only",
        "scatter_tma",
        "TMA store unwaited: only its source is free",
        HELPER,
        ("simulator", "lint"),
        in_module("cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"),
    ),
    Fault(
        "epoch not advanced",
        "scatter_push",
        "every call is call 0",
        HELPER,
        EITHER,
        in_module("epoch = tl.load(state) + 1", "epoch = tl.load(state)"),
    ),
    Fault(
        "flag set twice",
        "scatter_push",
        "first to the epoch before, then to the epoch",
        HELPER,
        LOG,
        in_module(
            "    tl.debug_barrier()\n    tl.atomic_xchg(flag",
            "    tl.debug_barrier()\n"
            '    tl.atomic_xchg(flag, epoch - 1, sem="release", scope="sys")\n'
            "    tl.atomic_xchg(flag",
        ),
    ),
    # ---- counters and tickets
    Fault(
        "relaxed counter",
        "scatter_push",
        "the last tile does not know of the others",
        HELPER,
        SIM,
        in_module(ARRIVE, ARRIVE.replace("acq_rel", "relaxed")),
    ),
    Fault(
        "counter not reset",
        "scatter_push",
        "the second call never signals",
        HELPER,
        SIM,
        in_module('    if last:\n        tl.atomic_xchg(counter, 0, sem="relaxed", scope="gpu")\n', ""),
    ),
    Fault(
        "counter expects one more",
        "scatter_push",
        "nobody is last",
        HELPER,
        SIM,
        in_module("last = before == expected - 1", "last = before == expected"),
    ),
    Fault(
        "counter expects one less",
        "scatter_push",
        "signals before the last tile",
        HELPER,
        SIM,
        in_module("last = before == expected - 1", "last = before == expected - 1 - (expected > 1).to(tl.int32)"),
    ),
    Fault(
        "tickets not reset",
        "scatter_push",
        "the second call finds no tiles",
        HELPER,
        ("simulator", "float64"),
        in_module('        tl.atomic_xchg(tickets, 0, sem="relaxed", scope="gpu")\n', ""),
    ),
    Fault(
        "roles not reset",
        "gather_push",
        "the second call has no movers",
        HELPER,
        SIM,
        in_module('        tl.atomic_xchg(tickets + 1, 0, sem="relaxed", scope="gpu")\n', ""),
    ),
    Fault(
        "ticket by load and store",
        "scatter_push",
        "two programs take one tile",
        HELPER,
        SIM,
        in_module(
            '    return tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")',
            "    ticket = tl.load(tickets)\n    tl.store(tickets, ticket + 1)\n    return ticket",
        ),
    ),
    Fault(
        "walk leaves out a rank",
        "scatter_push",
        "one owner twice, one never",
        HELPER,
        EITHER,
        in_module("    return (rank + 1 + step) % W", "    return (rank + 1 + tl.minimum(step, W - 2)) % W"),
    ),
    # ---- staging and closing
    Fault(
        "staged into the next place",
        "gather_push",
        "wrong owner",
        HELPER,
        EITHER,
        in_module(
            "rank.to(tl.int64) * stride) * (pitch * VEC)", "(rank + 1) % W * stride.to(tl.int64)) * (pitch * VEC)"
        ),
    ),
    Fault(
        "staged after the ready flag",
        "gather_pull",
        "early signal",
        HELPER,
        EITHER,
        in_module(
            "        if COPY:\n",
            "        if READY:\n            for peer in range(W):\n"
            "                set_flag(words_of(ready_peers, peer) + rank, epoch, state)\n        if COPY:\n",
        ),
    ),
    Fault(
        "entry barrier waits for itself",
        "gather_copy_pull",
        "barrier that waits for nobody",
        HELPER,
        EITHER,
        in_module("wait_flag(ready + peer, epoch, site, peer,", "wait_flag(ready + rank, epoch, site, peer,"),
    ),
    Fault(
        "closing barrier waits for nobody",
        "scatter_tma",
        "buffers overwritten while read",
        HELPER,
        EITHER,
        in_module("        for peer in range(W):\n            " + CLOSE_WAIT + "\n", ""),
    ),
    Fault(
        "closing barrier waits for itself",
        "gather_copy_push",
        "buffers overwritten while read",
        HELPER,
        EITHER,
        in_module(CLOSE_WAIT, CLOSE_WAIT.replace("closed + peer", "closed + rank")),
    ),
    Fault(
        "closing barrier tells one peer",
        "gather_pull",
        "the others wait for ever",
        HELPER,
        SIM,
        in_module("words_of(closed_peers, peer)", "words_of(closed_peers, 0)"),
    ),
    # ---- timeouts
    Fault(
        "waits for ever",
        "scatter_push",
        "no bound",
        HELPER,
        ("timeout", "simulator"),
        in_module("            if spent > limit:", "            if spent < 0:"),
        run=SILENT,
    ),
    Fault(
        "gives up without a word",
        "scatter_push",
        "the host is not told",
        HELPER,
        ("timeout",),
        (
            Edit('        tl.atomic_xchg(record, 1, sem="release", scope="sys")\n', ""),
            Edit('            tl.atomic_cas(record, 0, 2, sem="relaxed", scope="sys")', "            pass"),
        ),
        run=SILENT,
    ),
    Fault(
        "a wait that ran out counts as done",
        "scatter_ring",
        "a dead program publishes",
        HELPER,
        ("timeout",),
        in_module("    return (seen - epoch >= 0).to(tl.int32)", "    return (seen == seen).to(tl.int32)")
        + ALWAYS_ALIVE,
        run=SILENT,
    ),
    Fault(
        "the next kernel of a dead call publishes",
        "mlp",
        "the dead word is not read",
        HELPER,
        ("timeout",),
        ALWAYS_ALIVE + in_module("active = active * alive(state)", "pass", 3),
        run=SILENT,
    ),
)
