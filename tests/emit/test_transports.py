"""Every legal transport, emitted, on three simulated ranks: bits of `exact`, float64 on integers, conformance, races.

M is ragged, none, one row; a chunk is not a multiple of the tile; seeds alternate residency and TMA.
"""

import itertools

import pytest
from emitted import GATHER, REDUCE, SCATTER, SMALL, failures, run

PLACES = ("place = own_sms(1)", "place = co_located")
PEERS = ("direct", "swizzle")
ROUTES = (*PEERS, "ring")
SIDES = ("push", "pull")
GATHERS = [
    f"via = copy_engine, route = {r}, side = {s}, buffers = 1" for r, s in itertools.product(PEERS, SIDES)
]
GATHERS += [
    f"via = {v}, route = {r}, side = {s}, {p}, buffers = {b}"
    for (v, r, s, p), b in zip(
        itertools.product(("tma", "ldst"), ROUTES, SIDES, PLACES), itertools.cycle((1, 2, 3)), strict=False
    )
    if not (r == "ring" and s == "pull")
]
REDUCTIONS = [
    f"via = {v}, route = {r}, side = push, {p}, buffers = {b}"
    for (v, r, p), b in zip(
        itertools.product(("tma", "ldst"), ROUTES, PLACES), itertools.cycle((2, 3, 1)), strict=False
    )
]
REDUCTIONS += [f"via = ldst, route = {r}, side = pull, place = co_located, buffers = 2" for r in ("direct", "swizzle")]
ONE_SHOT = [p for p in REDUCTIONS if "co_located" in p and "ring" not in p]
TURNS = list(ONE_SHOT)
ONE_SHOT = [*ONE_SHOT[::3], ONE_SHOT[4]]  # every tile goes to every rank: the route is nothing but a name there

CASES = [(GATHER, p) for p in GATHERS] + [(SCATTER, p) for p in REDUCTIONS]
# The first half of a two-shot all-reduce is a reduce-scatter: every third is enough.
CASES += [(REDUCE, f"{p}, order = interleaved" if p in TURNS else p) for p in REDUCTIONS[::3]]
CASES += [(REDUCE, f"{p}, algorithm = one_shot") for p in ONE_SHOT]


def name(case) -> str:
    text, policy = case
    kind = "gather" if text is GATHER else "scatter" if text is SCATTER else "reduce"
    return f"{kind}: {policy}"


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name(c) for c in CASES])
def test_a_legal_transport_gives_the_right_bits_and_conforms(number):
    text, policy = CASES[number]
    # Even seeds: small integers, all programs resident, TMA. Odd ones: normal numbers, two resident, pointer loads.
    seed = number % 4
    pointers = seed % 2 == 1 and "tma" not in policy
    sizes = (37, 0, 1, 5) if "buffers = 3" in policy else (37, 0, 1)  # the first buffer of three again
    rows = run(text.format(t="bf16", p=SMALL + policy), 3, sizes, seed, pointers)
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}
