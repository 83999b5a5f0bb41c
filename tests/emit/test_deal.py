"""all_to_all as it is emitted, on three simulated ranks: bits of `exact`, float64, conformance, races.

M is ragged, none, one row; a chunk is not a multiple of the tile; blocks are ragged where nothing asks for 16 bytes.
"""

import itertools

import pytest
import torch
from emitted import HEAD, built, failures, run

from chunkdsl.sim.world import World
from chunkdsl.verify.inputs import draw
from chunkdsl.verify.reference import evaluate

WHOLE = HEAD + "dim N = 40\ndim R = 41\n"
POLICY = "with {{ tile = 16x16x16, chunk = 10 along M, {p} }}"
INNER = "with {{ chunk = 10 along M, {p} }}"
ONTO_ROWS = (
    WHOLE + "tensor x : {t}[M, H @ tp]\ntensor w : {t}[N, H]\n"
    f"op f(x, w) -> y {{{{ y = all_to_all(x, H -> M) @ w.T {POLICY} }}}}\n"
)
ONTO_COLUMNS = (
    WHOLE + "tensor x : {t}[M @ tp, H]\ntensor w : {t}[N, H @ tp]\n"
    f"op f(x, w) -> y {{{{ y = reduce_scatter((all_to_all(x, M -> H) {INNER}) @ w.T, M)\n"
    "    with {{ tile = 16x16x16, chunk = 10 along M }} }}\n"
)
RAGGED_ROWS = (
    WHOLE + "tensor x : {t}[M, R @ tp]\ntensor r : {t}[M @ tp, R]\n"
    f"op f(x, r) -> y {{{{ y = gelu(all_to_all(x, R -> M)) + r {INNER} }}}}\n"
)
RAGGED_COLUMNS = (
    WHOLE + f"tensor x : {{t}}[M @ tp, R]\nop f(x) -> y {{{{ y = all_to_all(x, M -> R) {INNER} }}}}\n"
)
FROM_COLUMNS = (
    WHOLE + "tensor x : {t}[M, H]\ntensor w : {t}[R @ tp, H]\ntensor r : {t}[M @ tp, R]\n"
    f"op f(x, w, r) -> y {{{{ y = all_to_all(x @ w.T, R -> M) + r {POLICY} }}}}\n"
)
FROM_ROWS = (
    WHOLE + "tensor x : {t}[M @ tp, H]\ntensor w : {t}[F, H]\ntensor b : {t}[F]\n"
    f"op f(x, w, b) -> y {{{{ y = all_to_all(x @ w.T + b, M -> F) {POLICY} }}}}\n"
)
# Named once and used twice, of a value that a launch before it makes; then both sides of one product.
NAMED = (
    WHOLE + "tensor x : {t}[M, H @ tp]\ntensor w : {t}[N, H]\nop f(x, w) -> y, z {{\n"
    f"    g = all_to_all(x * 2, H -> M) {INNER}\n"
    "    y = g @ w.T with {{ tile = 16x16x16 }}\n    z = g + 1\n}}\n"
)
BOTH_SIDES = (
    WHOLE + "tensor x : {t}[M, H @ tp]\ntensor w : {t}[R, H]\n"
    f"op f(x, w) -> y {{{{ y = all_to_all((all_to_all(x, H -> M) {INNER}) @ w.T, M -> R)\n"
    "    with {{ tile = 16x16x16, chunk = 7 along M }} }}\n"
)
GATHERED = (
    WHOLE + "tensor x : {t}[M @ tp, H]\ntensor w : {t}[N @ tp, H]\n"
    f"op f(x, w) -> y {{{{ y = all_to_all((all_gather(x) {INNER}) @ w.T, N -> M)\n"
    "    with {{ tile = 16x16x16, chunk = 7 along M }} }}\n"
)
ROUTES, SIDES = ("direct", "swizzle"), ("push", "pull")
ENGINE = [f"via = copy_engine, route = {r}, side = {s}" for r, s in itertools.product(ROUTES, SIDES)]
PROGRAMS = [
    f"via = ldst, route = {r}, side = {s}, place = {p}, buffers = {b}"
    for (r, s, p), b in zip(
        itertools.product(ROUTES, SIDES, ("own_sms(1)", "co_located")), itertools.cycle((1, 2, 2)), strict=False
    )
]
STORES = [f"route = {r}, buffers = {b}, order = {o}" for r, b, o in
          (("direct", 1, "arrival"), ("swizzle", 2, "arrival"), ("swizzle", 1, "local_first"))]  # fmt: skip
# Each transport once, in one of the two directions; PROGRAMS[2] is that of RAGGED_ROWS.
CASES = [(ONTO_ROWS, p, "bf16") for p in [*ENGINE[1:3], *(PROGRAMS[i] for i in (0, 3, 5, 6))]]
CASES += [(ONTO_COLUMNS, p, "bf16") for p in ENGINE[::3] + PROGRAMS[1:8:3]]
CASES += [(FROM_COLUMNS, p, t) for p, t in zip(STORES[:2], ("bf16", "f32"), strict=True)]
CASES += [(FROM_ROWS, p, t) for p, t in zip(STORES[1:], ("bf16", "f16"), strict=True)]
CASES += [(RAGGED_ROWS, PROGRAMS[2], "f32"), (RAGGED_ROWS, ENGINE[0], "bf16"), (RAGGED_COLUMNS, ENGINE[1], "f16")]
CASES += [(RAGGED_COLUMNS, PROGRAMS[0], "bf16"), (NAMED, ENGINE[3], "bf16")]
CASES += [(BOTH_SIDES, PROGRAMS[0], "bf16"), (GATHERED, ENGINE[1], "bf16")]
NAMES = {id(v): k.lower() for k, v in list(globals().items()) if isinstance(v, str) and k.isupper()}


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{NAMES[id(s)]}: {t}, {p}" for s, p, t in CASES])
def test_a_legal_transport_gives_the_right_bits_and_conforms(number):
    text, policy, dtype = CASES[number]
    seed = number % 4
    rows = run(text.format(t=dtype, p=policy), 3, (37, 0, 1), seed, pointers=seed % 2 == 1)
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}


@pytest.mark.parametrize("world", (1, 4))
def test_more_ranks_than_columns_blocks_and_one_rank_alone(world):
    for text in (RAGGED_ROWS, RAGGED_COLUMNS):
        text = text.replace("dim R = 41", "dim R = 3").format(t="bf16", p="via = ldst, place = co_located")
        assert failures(run(text, world, (9, 2), 1)) == []


@pytest.mark.parametrize("text", (ONTO_ROWS, ONTO_COLUMNS, RAGGED_COLUMNS, FROM_COLUMNS, FROM_ROWS))
def test_the_fallback_computes_the_same(text):
    program, schedule, module, title = built(text.format(t="f32", p="buffers = 1"))
    op, dims = program.ops[0], {"M": 37}
    inputs = draw(op, schedule.ops[0], dims, 3, 5, True)

    def host(machine):
        instance = getattr(module, title)(machine=machine)
        return instance.f.fallback(*inputs.shards[machine.rank], **dims)

    shards = World(3, seed=1).run(host)
    placement = op.results[0][1].type.placements[0]
    assert torch.equal(torch.cat(shards, placement.dim).double(), evaluate(op, inputs.whole)["y"])
