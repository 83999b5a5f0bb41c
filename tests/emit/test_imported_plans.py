"""Plan files, emitted as tables, on simulated ranks: bits of `exact`, float64 on integers, conformance, races.

Calls are ragged, none, one row; a chunk is not a multiple of the tile.
"""

from pathlib import Path

import pytest
from emitted import GATHER, REDUCE, SCATTER, SMALL, built, failures, run

from chunkdsl.check.worlds import prove_op

FOLDER = Path(__file__).parent.parent / "plan" / "imported"


def spec(head, file, contract, world):
    text = head.format(t="bf16", p=f"{SMALL}via = ldst, place = own_sms(2), route = r").replace("tp[2]", f"tp[{world}]")
    return f'{text}use plan "{FOLDER / file}" as r : {contract} over tp\n'


CASES = [
    (GATHER, "hierarchical_all_gather_2x2.xml", "all_gather", 4),
    (GATHER, "get_all_gather_3.json", "all_gather", 3),
    (REDUCE, "all_pairs_all_reduce_3.xml", "all_reduce", 3),
    (REDUCE, "read_all_reduce_2.json", "all_reduce", 2),  # fetches addends
    (SCATTER, "two_block_reduce_scatter_2.json", "reduce_scatter", 2),
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[file for _, file, *_ in CASES])
def test_an_imported_plan_gives_the_right_bits_and_conforms(number):
    head, file, contract, world = CASES[number]
    rows = run(spec(head, file, contract, world), world, (37, 0, 1), seed=number)
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[file for _, file, *_ in CASES])
def test_it_is_proven_for_its_own_world_size_alone(number):
    head, file, contract, world = CASES[number]
    _, schedule, module, title = built(spec(head, file, contract, world))
    assert prove_op(schedule, schedule.ops[0], world).proven
    other = 2 if world > 2 else 3
    assert {r.code for r in prove_op(schedule, schedule.ops[0], other).refutations} == {"CD026"}
    assert getattr(module, title).PROVEN == (world,)
