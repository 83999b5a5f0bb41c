"""Faults of the wrapper that the host runs."""

from __future__ import annotations

from mutant_faults import EITHER, SIM, Fault, in_module

WRAPPER = "wrapper"
COPY = 'm.copy(here[reader] + at, here[holder] + at, (end - first) * pitch, "f_x_gathered_move", label)'
FLAG = 'm.copy(flag[reader] + word, self.word.data_ptr(), 4, "f_x_gathered_move")'

FAULTS = (
    Fault(
        "no closing barrier in the wrapper",
        "scatter_tma",
        "reuse without barrier",
        WRAPPER,
        EITHER,
        in_module("        if fused:\n            self.close(active)\n", ""),
    ),
    Fault(
        "no closing barrier behind pushes from the parameter",
        "gather_copy_push",
        "copies overwrite what a peer still reads",
        WRAPPER,
        EITHER,
        in_module("        if fused:\n            self.close(active)\n", ""),
    ),
    Fault(
        "no entry barrier in the wrapper",
        "gather_copy_pull",
        "copies start before the peers have staged",
        WRAPPER,
        EITHER,
        in_module(
            "                True, copy, 1, active, self.SLOTS,", "                False, copy, 1, active, self.SLOTS,"
        ),
    ),
    Fault(
        "copies not forked",
        "gather_copy_push",
        "copies start before the call before has ended",
        WRAPPER,
        SIM,
        in_module('            m.fork("f_x_gathered_move")', "            pass"),
    ),
    Fault(
        "every chunk pushed from the first row of the parameter",
        "gather_copy_push",
        "a peer gets other rows",
        WRAPPER,
        ("exact", "float64"),
        in_module(".data_ptr() + first * pitch", ".data_ptr() + 0 * pitch"),
    ),
    Fault(
        "copies not joined",
        "gather_copy_push",
        "the call ends before its copies",
        WRAPPER,
        SIM,
        in_module('            m.join("f_x_gathered_move")', "            pass"),
    ),
    Fault(
        "flag copied before the data",
        "gather_copy_pull",
        "early signal",
        WRAPPER,
        SIM,
        in_module(
            COPY,
            "word = 4 * (content * chunk_cap + c)\n                        "
            + FLAG
            + "\n                        "
            + COPY,
        ),
    ),
    Fault(
        "empty chunks not signalled by copies",
        "gather_copy_pull",
        "an empty call signals nobody",
        WRAPPER,
        SIM,
        in_module(FLAG, "first < end and " + FLAG),
    ),
    Fault(
        "flag copied to the holder",
        "gather_copy_pull",
        "wrong rank is told",
        WRAPPER,
        EITHER,
        in_module(FLAG, FLAG.replace("flag[reader]", "flag[holder]")),
    ),
    Fault(
        "copies leave out the last peer",
        "gather_copy_push",
        "a peer gets nothing",
        WRAPPER,
        SIM,
        in_module("            for step in range(W - 1):", "            for step in range(W - 2):"),
    ),
    Fault(
        "copies of whole chunks",
        "gather_copy_pull",
        "copied past the shard's end",
        WRAPPER,
        EITHER,
        in_module("here[holder] + at, (end - first) * pitch", "here[holder] + at, chunk * pitch"),
    ),
    Fault(
        "host word never set",
        "gather_copy_pull",
        "copies signal an old epoch",
        WRAPPER,
        SIM,
        in_module("HOST_WORD, LANES = True,", "HOST_WORD, LANES = False,"),
    ),
    Fault(
        "too few flag words",
        "gather_push",
        "signal slots too few",
        WRAPPER,
        SIM,
        in_module(
            '("f_x_gathered_arrived", "symmetric", (W * cdiv(stride_of(dims["M"], W, 1), 8),)',
            '("f_x_gathered_arrived", "symmetric", (W * cdiv(stride_of(dims["M"], W, 1), 16),)',
        ),
    ),
    Fault(
        "too few words for a shard",
        "gather_copy_pull",
        "two chunks share a word",
        WRAPPER,
        EITHER,
        in_module("cdiv(shard_cap, 8),\n                out=y_", "cdiv(shard_cap, 16),\n                out=y_")
        + in_module("min(8, shard), cdiv(shard_cap, 8)\n", "min(8, shard), cdiv(shard_cap, 16)\n"),
    ),
    Fault(
        "buffer for one slot",
        "scatter_push",
        "half of the memory",
        WRAPPER,
        SIM,
        in_module("(2 * W * stride_of(", "(1 * W * stride_of("),
    ),
    Fault(
        "chunk of this call's rows for the words",
        "gather_push",
        "writer and reader number chunks by different bounds",
        WRAPPER,
        EITHER,
        in_module("f_x_gathered_move_chunk_cap=cdiv(shard_cap, 8),", "f_x_gathered_move_chunk_cap=cdiv(shard, 8),"),
    ),
    Fault(
        "flags of the wrong table",
        "scatter_push",
        "peers' words taken for this rank's own",
        WRAPPER,
        EITHER,
        in_module("out_arrived=self._f_y_arrived.table", "out_arrived=self._f_y_stage.table"),
    ),
    Fault(
        "exact takes its own part alone",
        "scatter_push",
        "the unfused pipeline gathers wrong rows",
        WRAPPER,
        ("exact",),
        in_module("every[:, rank * stride : (rank + 1) * stride]", "every[:, :stride]"),
    ),
    Fault(
        "rows of the shard for all rows",
        "two_shot",
        "the last shards look empty",
        WRAPPER,
        ("conformance", "float64", "simulator"),
        in_module('        rows = dims["M"]\n', '        rows = shard_rows(dims["M"], W, 0) * (W - 1)\n', 3),
    ),
)
