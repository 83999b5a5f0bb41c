"""Faults of zigzag and cyclic shards: halves in the wrong order, blocks off by one, wrong owners, rows in a row."""

from __future__ import annotations

from mutant_faults import EITHER, PRODUCT, SIM, STORE, Fault, in_module, in_template, launches
from mutants_of_schedules import PROOF, SCHEDULE, products, sums

from chunkdsl.ir.layouts import CONTIGUOUS, Cyclic, Zigzag

TEMPLATE, HELPER = "template", "helper"
VALUES = ("float64",)
ANY = (*EITHER, *VALUES)
LATE = "tl.where(local < half, owner * half, (2 * W - 2 - owner) * half) + local"
DEALT = "(local // BLOCK * W + owner) * BLOCK + local % BLOCK"
IN_A_ROW = "(owner * shard + row + down)[:, None]"
TWO = {"world": 2}  # 40 rows: two rounds of blocks, the last block short


class LateFirst(Zigzag):
    def element(self, size, world, rank, local):
        half = self.half(size, world)
        return super().element(size, world, rank, local + half if local < half else local - half)


FAULTS = (
    # ---- schedules, which the proof must refuse
    Fault(
        "the halves in the wrong order", "zigzag_gather", "the late block is taken for the early one", SCHEDULE, PROOF,
        change=launches(products, layout=LateFirst()),
    ),
    Fault(
        "zigzag shards taken for contiguous ones", "zigzag_gather", "rows of another block", SCHEDULE, PROOF,
        change=launches(products, layout=CONTIGUOUS),
    ),
    Fault(
        "sums of other rows than were sent", "cyclic_scatter", "blocks of another size", SCHEDULE, PROOF,
        change=launches(products, layout=Cyclic(32)),
    ),
    Fault(
        "the result is not in its layout", "cyclic_scatter", "wrong owner", SCHEDULE, PROOF,
        change=launches(sums, layout=CONTIGUOUS),
    ),
    # ---- rows of the whole, in the kernels
    Fault(
        "halves swapped", "zigzag_gather", "the late block is stored as the early one", HELPER, ANY,
        in_module(LATE, LATE.replace("<", ">=")),
    ),
    Fault(
        "the late block one off", "zigzag_gather", "off by one block", HELPER, (*SIM, *VALUES),
        in_module(LATE, LATE.replace("2 * W - 2", "2 * W - 3")),
    ),
    Fault(
        "dealt to the next rank", "cyclic_scatter", "wrong owner", HELPER, (*SIM, *VALUES),
        in_module(DEALT, DEALT.replace("W + owner)", "W + (owner + 1) % W)")), run=TWO,
    ),
    Fault(
        "rows read one behind the other", "cyclic_scatter", "the product of another shard's rows", TEMPLATE, VALUES,
        in_template(PRODUCT, "{{ view.apart }}[:, None]", IN_A_ROW), run=TWO,
    ),
    Fault(
        "rows stored one behind the other", "zigzag_gather", "the result is in the order of the shards", TEMPLATE, ANY,
        in_template(STORE, "out + (apart[:, None]", f"out + ({IN_A_ROW}.to(tl.int64)"),
    ),
)
