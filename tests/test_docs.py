"""The language reference says what the code does: its tables are read and compared, and what it calls not built is
tried. Commands, links and specs in documents: test_documents.py."""

import functools
import itertools
import re
from pathlib import Path

import pytest

from chunkdsl.lower import placements
from chunkdsl.lower.placements import Clash
from chunkdsl.lower.policies import APPLIES, COLLECTIVES, KEYS, MATMUL, REDUCTIONS
from chunkdsl.lower.policy_values import BUILT, LATER, LATER_KEYS, PREDEFINED
from chunkdsl.lower.sizes import FUNCTIONS
from chunkdsl.lower.tensors import DTYPES
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "grammars" / "README.md").read_text(encoding="utf-8")


def codes(text):
    return [d.code for d in check_source(Source("doc.chunk", text)).report.diagnostics]


def table(heading, first="", text=REFERENCE):
    """Rows of the first table below a heading whose header starts with `first`, as lists of cells."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for found in re.finditer(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in found[0].splitlines()]
        if rows[0][0].startswith(first):
            return rows
    raise AssertionError(f"no table {first!r} below {heading!r}")


def words(cell):
    return re.findall(r"`([^`]+)`", cell)


HEAD = "mesh tp[4] over nvlink\ndim M = 1..4096\ndim K = 512\ndim N = 512\n"
GATHER = "tensor x : bf16[M @ tp, K]\ntensor w : bf16[N @ tp, K]\n"
GATHER += "op f(x, w) -> y { y = all_gather(x) @ w.T with { %s } }\n"
PRODUCT = "tensor x : bf16[M, K @ tp]\ntensor w : bf16[N, K @ tp]\nop f(x, w) -> y { y = %s with { %%s } }\n"
DEALT = "tensor x : bf16[%s]\ntensor w : bf16[%s]\nop f(x, w) -> y { y = %s with { %%s } }\n"
COLLECTIVE = {
    "all_gather": HEAD + GATHER,
    "reduce_scatter": HEAD + PRODUCT % "reduce_scatter(x @ w.T, M)",
    "one_shot": HEAD + PRODUCT % "all_reduce(x @ w.T)",
    "two_shot": HEAD + PRODUCT % "all_reduce(x @ w.T)",
    "all_to_all(t, H -> M)": HEAD + DEALT % ("M, K @ tp", "N, K", "all_to_all(x, K -> M) @ w.T"),
    "all_to_all(t, M -> H)": HEAD + DEALT % ("M @ tp, K", "N, K", "all_to_all(x, M -> K)"),
    "all_to_all(a @ b, H -> M)": HEAD + DEALT % ("M, K", "N @ tp, K", "all_to_all(x @ w.T, N -> M)"),
    "all_to_all(a @ b, M -> H)": HEAD + DEALT % ("M @ tp, K", "N, K", "all_to_all(x @ w.T, M -> N)"),
}
TRANSPORTS = list(
    itertools.product(
        ("copy_engine", "tma", "ldst", "multimem"),
        ("none", "own_sms", "co_located"),
        ("direct", "swizzle", "ring"),
        ("push", "pull"),
        ("arrival", "local_first", "interleaved"),
    )
)


@functools.cache
def compiled_transports(collective):
    """What the compiler accepts. No place written means the automatic one, except by copy engine."""
    legal = set()
    for via, place, route, side, order in TRANSPORTS:
        if (place == "none") != (via == "copy_engine"):
            continue
        pairs = [f"via = {via}", f"route = {route}", f"side = {side}", f"order = {order}"]
        pairs += [f"place = {place}" + "(16)" * (place == "own_sms")] if place != "none" else []
        pairs += [f"algorithm = {collective}"] if collective.endswith("shot") else []
        found = codes(COLLECTIVE[collective] % ", ".join(pairs))
        assert set(found) <= {"CD601", "CD290"}
        if not found:
            legal.add((via, place, route, side, order))
    return legal


@pytest.mark.parametrize("collective", COLLECTIVE)
def test_the_table_of_transports_is_what_compiles(collective):
    written = []
    for row in table("Legal transports", "collective")[2:]:
        if collective in words(row[0]):
            cells = [words(cell) or [cell] for cell in row[1:]]
            written += itertools.product(*cells)
    assert len(written) == len(set(written)) >= 4
    assert set(written) == compiled_transports(collective)


def test_a_place_beside_copy_engines_is_refused():
    assert codes(COLLECTIVE["all_gather"] % "via = copy_engine, place = co_located") == ["CD601"]


def test_the_exclusions_beside_the_table():
    assert codes(COLLECTIVE["all_gather"] % "via = copy_engine, buffers = 2") == ["CD602"]
    assert codes(COLLECTIVE["reduce_scatter"] % "route = ring, reduce = rank_order") == ["CD604"]


CLASHES = {
    Clash.CONTRACTED: "CD203", Clash.ROWS_AND_COLUMNS: "CD205", Clash.BOTH_PARTIAL: "CD207",
    Clash.PARTIAL_AND_SHARD: "CD212", Clash.PARTIAL_AND_WHOLE: "CD206", Clash.DIVISOR: "CD208",
    Clash.UNLIKE: "CD211", Clash.NONLINEAR: "CD209",
}  # fmt: skip


def placement(cell):
    name = cell.split(",")[0].replace("(d)", "(0)").replace("(e)", "(1)")
    return {
        "Replicate": placements.Replicate(),
        "Partial": placements.Partial(),
        "Shard(0)": placements.Shard(0),
        "Shard(1)": placements.Shard(1),
    }[name]


def outcome(found):
    return CLASHES[found] if isinstance(found, Clash) else found


def test_the_table_of_products():
    rows = table("Placement rules", "`a @ b`")
    assert len(rows) == 6
    for row in rows[2:]:
        for column, cell in zip(rows[0][1:], row[1:], strict=True):
            found = outcome(placements.matmul_axis(placement(row[0]), placement(column)))
            assert found == (cell if cell.startswith("CD") else placement(cell)), (row[0], column)


def test_the_table_of_elementwise_operators():
    functions = (placements.add_axis, placements.mul_axis, placements.div_axis, placements.swiglu_axis)
    rows = table("Placement rules", "`a`")
    assert len(rows) == 14
    for a, b, *cells in rows[2:]:
        for function, cell in zip(functions, cells, strict=True):
            has = [lambda d, text=text: "broadcast" not in text for text in (a, b)]
            found = outcome(function(placement(a), placement(b), *has))
            assert found == (cell if cell.startswith("CD") else placement(cell)), (a, b, function.__name__)


@functools.cache
def policy_rows():
    return {words(row[0])[0]: row for row in table("Policies", "key")[2:]}


def test_every_key_has_a_row():
    assert sorted(policy_rows()) == sorted(KEYS)


@pytest.mark.parametrize("key", BUILT)
def test_the_values_of_a_key_are_those_that_are_built(key):
    assert tuple(words(policy_rows()[key][2])) == BUILT[key]


@pytest.mark.parametrize("key", KEYS)
def test_what_a_key_is_for(key):
    kinds = {
        "collectives": COLLECTIVES, "reductions": REDUCTIONS, "`all_reduce`": {"all_reduce"}, "products": MATMUL,
        "both": COLLECTIVES | MATMUL,
    }  # fmt: skip
    assert kinds[policy_rows()[key][1]] == APPLIES[key]


SMALL = HEAD + "tensor z : bf16[M, K] sum tp\nop f(z) -> y { y = all_reduce(z) with { %s } }\n"


@pytest.mark.parametrize("key", sorted(set(KEYS) - {"validity", "assume", "retry"}))
def test_values_in_the_table_are_accepted(key):
    collective = "all_gather" if "gather" in policy_rows()[key][4] else "two_shot"
    for value in (*words(policy_rows()[key][2]), "auto"):
        if value == "multimem":  # for small all-reduces alone
            assert codes(SMALL % "via = multimem") == ["CD644"]
            continue
        assert codes(COLLECTIVE[collective] % f"{key} = {value.replace('(n)', '(4)')}") == [], value


@pytest.mark.parametrize("value", [*(f"validity = {v}" for v in BUILT["validity"]), "retry = 1", "retry = 1024"])
def test_values_of_a_small_all_reduce_are_accepted(value):
    text = SMALL
    if "speculative" in value:
        assert codes(text % value) == ["CD641"]
    if "word" not in value and "flag" not in value:
        value = f"validity = speculative, assume = run_to_completion, {value}".replace(", validity = speculative", "")
    assert codes(text % value) == []


@pytest.mark.parametrize("collective, policy, expected", [
    ("all_gather", "", dict(route="swizzle", via="copy_engine", side="push", order="arrival", buffers="1",
                            chunk="4 MiB", tile="128x256x64")),
    ("all_gather", "route = ring", dict(via="ldst", side="push", place="own_sms(16)")),
    ("all_gather", "place = co_located", dict(via="ldst", side="push")),
    ("reduce_scatter", "", dict(route="swizzle", via="ldst", place="co_located", side="push", order="arrival",
                                reduce="fixed", wire="bf16", chunk="4 MiB", buffers="2")),
    ("two_shot", "route = ring", dict(algorithm="two_shot", place="own_sms")),
])  # fmt: skip
def test_what_auto_becomes(collective, policy, expected):
    schedule = check_source(Source("doc.chunk", COLLECTIVE[collective] % policy)).schedule
    chosen = {c.key: c.value for c in schedule.ops[0].choices}
    assert expected == {key: chosen.get(key) for key in expected}
    for key, value in expected.items():
        assert value.split("(")[0] in policy_rows()[key][4] or key == "wire"


def test_small_communication_buffers_are_two():
    schedule = check_source(Source("doc.chunk", COLLECTIVE["reduce_scatter"].replace("4096", "512") % "")).schedule
    assert schedule.ops[0].slots == 2


def test_the_policies_that_come_with_the_language():
    assert [words(row[0])[0] for row in table("Policies", "policy")[2:]] == list(PREDEFINED)
    for row in table("Policies", "policy")[2:]:
        assert {pair.split(" = ")[0] for pair in words(row[1])[0].split(", ")} == set(PREDEFINED[words(row[0])[0]])


# ---- not built yet

PARTS = "tensor x : bf16[M @ tp, K]\ntensor p : bf16[M, K] sum tp\ntensor w : bf16[N @ tp, K]\ntensor v : bf16[K, N]\n"
PACK = "tensor h : bf16[M, K @ tp]\ntensor u : bf16[N, K @ tp]\ntensor t : bf16[K @ tp, M]\n"
OP = "op f(%s) -> y { y = %s }\n"


def op(params, value):
    return HEAD + PARTS + PACK + OP % (params, value)


AXES = "mesh dp[2], tp[4]\ndim M = 1..64\ndim K = 256\n"
NOT_BUILT = {
    "a mesh of three axes": [HEAD.replace("mesh tp[4] over nvlink", "mesh rack[2], node[2], tp[8] over nvlink")],
    "the layout `ragged": [f"{HEAD}tensor z : bf16[M @ ragged(tp), K]\n"],
    "tensors of": [
        f"{HEAD}tensor z : {d}[M @ tp, K]\nop f(z) -> y {{ y = all_gather(z) }}\n"
        for d in DTYPES
        if d not in ("bf16", "f16", "f32", "i32", "i64")
    ],
    "parameters `inout`": [HEAD + PARTS + "op f(x inout, v) -> y {\n    x = x * 2\n    y = all_gather(x) @ v\n}\n"],
    "`rms_norm` of": [
        f"{HEAD}dim R = {size}\ntensor z : bf16[M, R]\ntensor g : bf16[R]\nop f(z, g) -> y {{ y = rms_norm(z, g) }}\n"
        for size in ("8..64 step 8", "16392")
    ],
    **{
        f"`{name}`": [op("x, v", f"{name}(x)")]
        for name in "attention softmax scaled_matmul dispatch grouped_matmul combine".split()
    },
    "the gradient of": [
        HEAD + "tensor x : bf16[M @ tp, K]\ntensor z : bf16[2, N, K]\n"
        "op f(x, z) -> y { y = all_gather(x) @ z[0].T }\ngradient f -> dx, dz\n",
        HEAD + "tensor x : bf16[M @ tp, K]\ntensor z : bf16[M @ tp, 1]\nop f(x, z) -> y { y = x * z }\n"
        "gradient f -> dx, dz\n",
        HEAD + "tensor x : bf16[M @ tp, K]\nop f(x) -> y { y = relu(all_gather(x)) }\ngradient f -> dx\n",
    ],
    "`.T` on": [op("t, u, v", "v.T @ v + v.T @ v")],
    "steps of one": [
        HEAD + "plan p(t) : all_gather over tp {\n    send t[rank] to (rank + 1) mod tp with { chunk = 4 per shard }\n"
        f"    for i in range(2, tp) {{ send t[rank] to (rank + i) mod tp{more} }}\n}}\n"
        for more in ("", " with { chunk = 8 per shard }")
    ],
    **{f"`{k} = {v}`": [COLLECTIVE["two_shot"] % f"{k} = {v}"] for k, v in LATER},
    "`wire` of fp8": [COLLECTIVE["two_shot"] % "wire = f8e4m3"],
    "the keys": [COLLECTIVE["two_shot"] % f"{key} = 4" for key in LATER_KEYS],
    "`min max": [f"{HEAD}dim Z = {f}({', '.join('M8'[: n])})\n" for f, n in FUNCTIONS.items() if f != "cdiv"],
    "gathering or": [op("h, v", "all_gather(h) @ v"), op("h, u", "reduce_scatter(h @ u.T, N)")],
    "`all_to_all` of": [
        HEAD + "dim R = 8\ntensor z : bf16[R, M @ tp, K]\nop f(z) -> y { y = all_to_all(z, M -> K) }\n",
        op("x, u", "all_reduce((all_to_all(x, M -> K) with { via = ldst }) @ u.T) with { algorithm = one_shot }"),
    ],
    "both axes of": [
        AXES + "tensor x : bf16[M, K @ (dp, tp)]\nop f(x) -> y { y = all_to_all(x, K -> M, over = (dp, tp)) }\n",
    ],
    "a zigzag or": [
        AXES + "tensor p : bf16[M @ zigzag(dp), K] sum tp\nop f(p) -> y { y = all_reduce(p) }\n",
        AXES + "tensor p : bf16[M @ dp, K] sum tp\nop f(p) -> y { y = reduce_scatter(p, M @ zigzag(tp)) }\n",
    ],
    "`all_to_all`, or": [
        f"{HEAD}tensor z : bf16[M @ zigzag(tp), K]\nop f(z) -> y {{ y = all_to_all(z, M -> K) }}\n",
    ],
    "results and": [f"{HEAD}tensor z : bf16[K]\nop f(z) -> y {{ y = z * 2 }}\n"],
    "a right operand": [
        op("x, v", "all_gather(x) @ (v * 2)"),
        HEAD + PARTS + "dim S = 512\ntensor z : bf16[N @ tp, S]\nop f(v, z) -> y { y = v @ all_to_all(z, N -> S) }\n",
    ],
    "more than two": [op("x, v", "x @ v + x @ v + x @ v"), op("x, v", "x @ v + (x * 2) @ v")],
    "two reductions": [op("p", "all_reduce(p) + all_reduce(p * 2)")],
    "a reduction beside": [op("p, x", "all_reduce(p) + all_gather(x)")],
    "`.T` anywhere": [op("t, u", "all_reduce(t.T @ u.T)"), op("v", "v.T * 2")],
    "co-located transfers": [
        HEAD + PARTS + "tensor z : bf16[K, N] sum tp\nop f(x, z) -> y {\n"
        "    y = reduce_scatter((all_gather(x) with { place = co_located }) @ z, M)\n"
        "        with { place = co_located, route = ring }\n}\n",
    ],
    "gathers of two": [
        HEAD + PARTS + "tensor q : bf16[M @ tp, K]\nop f(x, q) -> y { y = all_gather(x) + all_gather(q) }\n",
    ],
    "one tensor": [op("x", "(all_gather(x) with { chunk = 8 along M }) + all_gather(x)")],
    "products of": [op("x, w", "(all_gather(x) @ w.T with { tile = 64x64x64 }) + all_gather(x) @ w.T")],
    "different `fallback`s": [
        HEAD + PARTS + "op f(x, v) -> y, z {\n    y = all_gather(x) @ v with { fallback = exact }\n"
        "    z = all_gather(x) * 2 with { fallback = nccl }\n}\n",
    ],
    "matrices with": [
        f"{HEAD}dim R = 1..64\ntensor z : bf16[M @ tp, R]\nop f(z) -> y {{ y = all_gather(z) with {{ via = ldst }} }}\n"
    ],
    "copy engines for": [
        f"{HEAD}dim R = 8..64 step 8\ntensor z : bf16[M @ tp, R]\nop f(z) -> y {{ y = all_gather(z) }}\n"
    ],
}  # fmt: skip


def test_every_row_of_the_section_is_tried():
    rows = [row[0] for row in table("Parsed, not built yet", "construct")[2:]]
    for row in rows:
        assert sum(row.startswith(start) for start in NOT_BUILT) == 1, row
    assert len(rows) == len(NOT_BUILT)


@pytest.mark.parametrize("start", NOT_BUILT)
def test_what_is_not_built_is_refused_with_its_code(start):
    row = next(r for r in table("Parsed, not built yet", "construct")[2:] if r[0].startswith(start))
    for spec in NOT_BUILT[start]:
        assert set(codes(spec)) == {row[1]}, spec
