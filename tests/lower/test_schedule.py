"""Every transport: the legal ones schedule, unroll and are proven; each illegal one is refused by one finding.

The rules are written here a second time, as predicates; the table in the language reference is compared in test_docs.
"""

import itertools
from dataclasses import replace
from typing import NamedTuple

import pytest

from chunkdsl.check.explain import load_rules
from chunkdsl.check.prove import prove
from chunkdsl.check.worlds import prove_worlds
from chunkdsl.lower.choices import GATHER_LEGAL, REDUCE_LEGAL
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = """mesh tp[2] over nvlink
dim M = 1..64
dim H = 48
dim F = 240
"""
GATHER = "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\nop f(x, w) -> y { y = all_gather(x) @ w.T"
REDUCE = "tensor x : bf16[M, F @ tp]\ntensor w : bf16[H, F @ tp]\nop f(x, w) -> y { y = %s"
SHAPES = "tile = 16x16x16, chunk = 24 along M"  # neither a multiple of the other
SPECS = {
    "all_gather": GATHER,
    "reduce_scatter": REDUCE % "reduce_scatter(x @ w.T, M)",
    "two_shot": REDUCE % "all_reduce(x @ w.T)",
    "one_shot": REDUCE % "all_reduce(x @ w.T)",
}
WORLDS = [1, 2, 3, 5]


class Transport(NamedTuple):
    collective: str
    route: str
    via: str
    side: str
    place: str
    order: str
    buffers: int
    reduce: str = "fixed"

    def spec(self):
        pairs = [f"{key} = {getattr(self, key)}" for key in ("route", "via", "side", "order", "buffers")]
        pairs += [f"place = {self.place}".replace("own_sms", "own_sms(1)")] if self.place else []
        if self.collective != "all_gather":
            pairs.append(f"reduce = {self.reduce}")
        if self.collective.endswith("shot"):
            pairs.append(f"algorithm = {self.collective}")
        return HEAD + SPECS[self.collective] + f" with {{ {SHAPES}, {', '.join(pairs)} }} }}\n"

    def refusals(self):
        """Codes of the rules that it breaks."""
        ring, gather = self.route == "ring", self.collective == "all_gather"
        found = set()
        if self.via == "copy_engine" and (not gather or ring or self.place):
            found.add("CD601")
        if self.via != "copy_engine" and not self.place:
            found.add("CD601")
        if ring and self.side == "pull":
            found.add("CD601")
        if not gather and self.side == "pull" and (self.via == "tma" or self.place == "own_sms"):
            found.add("CD601")
        if self.place == "co_located" and self.order != "arrival" and (gather or ring):
            found.add("CD601")
        if self.collective == "one_shot" and (ring or self.place == "own_sms"):
            found.add("CD601")
        if self.via == "copy_engine" and self.buffers == 2 and gather:
            found.add("CD602")
        if ring and self.reduce == "rank_order":
            found.add("CD604")
        return found


def transports():
    rest = (("push", "pull"), ("", "own_sms", "co_located"), ("arrival", "local_first"), (1, 2))
    vias = sorted({*GATHER_LEGAL, *REDUCE_LEGAL})
    for collective in SPECS:
        reduces = ("fixed",) if collective == "all_gather" else ("fixed", "rank_order")
        for made in itertools.product((collective,), ("direct", "swizzle", "ring"), vias, *rest, reduces):
            t = Transport(*made)
            if (t.place or t.via == "copy_engine") and (t.via != "copy_engine" or not t.place or t.side == "push"):
                yield t


ALL = list(transports())
LEGAL = [t for t in ALL if not t.refusals()]
PROVEN = [t for t in LEGAL if t.reduce == "fixed" and t.via != "tma"]


def scheduled(text):
    checked = check_source(Source("t.chunk", text))
    return checked.schedule, [d.code for d in checked.report.diagnostics]


def schedule_of(t):
    made, codes = scheduled(t.spec())
    assert codes == [], t
    return made


def without_closing(schedule):
    return replace(schedule, ops=tuple(replace(op, closing=False) for op in schedule.ops))


def test_what_is_legal_schedules_and_what_is_not_gives_one_finding():
    assert len(LEGAL) > 120 and len(ALL) - len(LEGAL) > 300
    for t in ALL:
        made, codes = scheduled(t.spec())
        assert (len(codes) == 1 and codes[0] in t.refusals()) if t.refusals() else codes == [], (t, codes)
        assert len(made.ops) == (0 if t.refusals() else 1), t


def test_the_tables_hold_every_legal_transport():
    for table, gather in ((GATHER_LEGAL, True), (REDUCE_LEGAL, False)):
        used = {}
        for t in LEGAL:
            if (t.collective == "all_gather") == gather:
                places, routes, sides = used.setdefault(t.via, (set(), set(), set()))
                places.add(t.place or None)
                routes.add(t.route)
                sides.add(t.side)
        assert used == {via: tuple(map(set, row)) for via, row in table.items()}


@pytest.mark.parametrize("collective", SPECS)
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_every_legal_transport_is_proven(collective, buffers):
    """What serves two buffers serves three: of these every twelfth is proven."""
    chosen = [t for t in PROVEN if (t.collective, t.buffers) == (collective, min(2, buffers))]
    chosen = [t._replace(buffers=3) for t in chosen[::12]] if buffers == 3 else chosen
    assert chosen
    for t in chosen:
        made = schedule_of(t)
        assert made.ops[0].slots == buffers and made.ops[0].closing == (buffers == 1), t
        for verdict in prove_worlds(made, WORLDS):
            assert verdict.proven, (t, verdict)


def test_tma_and_plain_stores_make_one_plan():
    """And so do `fixed` and `rank_order` without a ring: what was proven above holds for them."""
    calls = [{"M": 64}, {"M": 3}, {"M": 41}]
    twins = [t for t in LEGAL if t.via == "tma" or t.reduce == "rank_order"]
    assert {t.via for t in twins} == {"tma", "ldst"}
    for t in twins:
        one, other = schedule_of(t), schedule_of(t._replace(via="ldst", reduce="fixed"))
        assert unroll(one, one.ops[0], 3, calls) == unroll(other, other.ops[0], 3, calls), t


@pytest.mark.parametrize("collective", SPECS)
def test_one_buffer_needs_the_closing_barrier(collective):
    """But for a two-shot all-reduce: a rank ends its call when it has every shard's total, each of which its owner sent
    after it had read all addends; and it overwrites a total only with addends of ranks that have copied out the last.
    """
    for t in [t for t in PROVEN if t.collective == collective and t.buffers == 1]:
        for verdict in prove_worlds(without_closing(schedule_of(t)), [2, 3]):
            if collective == "two_shot":
                assert verdict.proven, (t, verdict)
            else:
                assert {r.code for r in verdict.refutations} & {"CD401", "CD402", "CD403"}, (t, verdict)


def test_two_buffers_that_are_one_are_refuted():
    """The same plans in one copy of the buffer: the order that two buffers rely on is not enough for one."""
    for t in [t for t in PROVEN if t.buffers == 2 and t.collective in ("all_gather", "reduce_scatter")]:
        made = schedule_of(t)
        op = replace(made.ops[0], slots=1, buffers=tuple(replace(b, slots=1) for b in made.ops[0].buffers))
        assert prove(unroll(made, op, 3, [{"M": 64}] * 3), programs=1), t


# ---- what auto becomes

AUTO_KEYS = {
    "all_gather": {"route", "via", "side", "order", "chunk", "buffers"},
    "reduce_scatter": {"route", "via", "side", "place", "order", "reduce", "add", "wire", "chunk", "buffers"},
    "all_reduce": {"algorithm", "route", "via", "side", "place", "order", "reduce", "add", "wire", "chunk", "buffers"},
}


@pytest.mark.parametrize("collective", AUTO_KEYS)
def test_each_choice_is_recorded_once_with_a_reason(collective):
    spec = SPECS.get(collective, SPECS["two_shot"])
    made, _ = scheduled(HEAD + spec + " }\n")
    choices = made.ops[0].choices
    keys = [c.key for c in choices]
    expected = AUTO_KEYS[collective] | {"tile", "stages", "warps", "compute", "fuse_from", "fallback"}
    assert sorted(keys) == sorted(expected)
    assert all(c.value and c.why and c.where.startswith("f: ") for c in choices)


def test_what_the_spec_says_is_no_choice():
    transport = "route = ring, via = ldst, side = push, place = own_sms(2), order = arrival, buffers = 1"
    product = "chunk = 8 along M, compute = generated, stages = 3, warps = 4, tile = 64x64x32"
    pairs = f"fuse_from = always, fallback = exact, {product}, {transport}"
    made, codes = scheduled(HEAD + GATHER + f" with {{ {pairs} }} }}\n")
    assert codes == [] and made.ops[0].choices == ()
    assert (made.ops[0].launches[0].tiling.stages, made.ops[0].launches[0].tiling.warps) == (3, 4)


@pytest.mark.parametrize("rows, slots", [(2796202, 2), (2796203, 1)])
def test_buffers_above_256_mebibytes_are_one(rows, slots):
    """48 columns of bf16 are 96 bytes a row."""
    assert (rows * 96 <= 256 << 20) == (slots == 2)
    text = (HEAD + GATHER + " with { via = ldst } }\n").replace("1..64", f"1..{rows}")
    made, _ = scheduled(text)
    op = made.ops[0]
    assert (op.slots, op.closing) == (slots, slots == 1)
    (choice,) = [c for c in op.choices if c.key == "buffers"]
    assert choice.value == str(slots) and choice.why.startswith("a second" if slots == 2 else "above 256 MiB")


# ---- examples of the rules

CODES = ("CD501", "CD502", "CD503", "CD504", "CD601", "CD602", "CD603", "CD604", "CD607", "CD608", "CD611", "CD612")
CODES += ("CD609", "CD640", "CD641", "CD642", "CD643", "CD644", "CD650", "CD671")
CODES += ("CD620", "CD621", "CD622", "CD623", "CD624", "CD625")
CODES += ("CD326", "CD344", "CD355", "CD360", "CD361", "CD362")


@pytest.mark.parametrize("code", CODES)
def test_example_fails(code):
    assert scheduled(load_rules()[code].fails)[1] == [code]


@pytest.mark.parametrize("code", CODES)
def test_mended_example_is_clean(code):
    made, codes = scheduled(load_rules()[code].mended)
    assert codes == [] and len(made.ops) == 1


def test_every_rule_of_resources_and_targets_has_a_test_of_its_examples():
    elsewhere = {"CD605", "CD606"}  # the first is below; the second needs a proof: tests/check/test_proofs.py
    elsewhere |= {"CD670"}  # of a gradient, two ops: tests/lower/test_rule_examples.py
    elsewhere |= {"CD660", "CD661", "CD662", "CD663"}  # Python: tests/api/test_api_rules.py
    known = {c for c in load_rules() if c.startswith(("CD5", "CD6"))}
    assert known - elsewhere == {code for code in CODES if not code.startswith("CD3")}
