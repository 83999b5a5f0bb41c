"""What emitted kernels compute: dtypes, epilogues, wire and rounding, local ops, results under two names."""

import pytest
from emitted import GATHER, HEAD, SCATTER, SMALL, failures, run

RING = "via = ldst, route = ring, place = co_located, buffers = 2"


@pytest.mark.parametrize(("dtype", "seed"), [("bf16", 0), ("bf16", 1), ("f16", 1), ("f32", 0)])
def test_each_dtype_in_both_directions(dtype, seed):
    pointers = seed == 1
    assert failures(run(GATHER.format(t=dtype, p=SMALL + "via = ldst, buffers = 2"), 2, (37, 1), seed, pointers)) == []
    assert failures(run(SCATTER.format(t=dtype, p=SMALL + "buffers = 2"), 2, (37, 1), seed, pointers)) == []


@pytest.mark.parametrize("wire", ("f32", "bf16"))
@pytest.mark.parametrize("policy", (RING, "via = ldst, place = co_located, buffers = 2"), ids=("ring", "direct"))
def test_a_wire_dtype_rounds_the_addends_and_the_same_way_in_exact(wire, policy):
    assert failures(run(SCATTER.format(t="bf16", p=SMALL + f"wire = {wire}, {policy}"), 3, (37, 5), 1)) == []


@pytest.mark.parametrize("route", ("swizzle", "ring"))
def test_what_travels_may_be_of_another_width_than_the_result(route):
    """f32 rows of 36 are whole 16 bytes and no multiple of 8; the 32 columns of the result are one."""
    sizes = "mesh tp[2] over nvlink\ndim M = 0..64\ndim H = 36\ndim F = 64\n"
    tensors = "tensor x : f32[M @ tp, H]\ntensor w : f32[F @ tp, H]\n"
    policy = f"{SMALL} via = ldst, route = {route}, buffers = 2"
    body = f"op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ {policy} }} }}\n"
    assert failures(run(sizes + tensors + body, 2, (37, 3), 1)) == []


EPILOGUES = {
    "gelu, bias": "gelu(all_gather(x) @ w.T + c)",
    "silu times": "silu(all_gather(x) @ w.T) * 0.5 - 1.0",
    "relu": "relu(-(all_gather(x) @ w.T))",
    "tanh": "tanh(all_gather(x) @ w.T / 8)",
    "two products": "swiglu(all_gather(x) @ w.T, all_gather(x) @ u.T)",
    "column": "(all_gather(x) @ w.T) * k",
    "scalar tensor": "(all_gather(x) @ w.T) * s + c",
    "cast": "cast(cast(all_gather(x) @ w.T, f16), bf16)",
}


@pytest.mark.parametrize("title", EPILOGUES)
def test_an_epilogue(title):
    tensors = (
        "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\ntensor u : bf16[F @ tp, H]\ntensor c : bf16[F @ tp]\n"
        "tensor k : bf16[M, 1]\ntensor s : f32[]\n"
    )
    used = [p for p in "xwucks" if p in "xw" or f" {p}" in EPILOGUES[title] or f"@ {p}." in EPILOGUES[title]]
    body = f"op f({', '.join(used)}) -> y {{ y = {EPILOGUES[title]} with {{ {SMALL} via = ldst, buffers = 2 }} }}\n"
    assert failures(run(HEAD + tensors + body, 2, (37, 3), 1)) == []


BROADCASTS = {
    "one number as a vector": ("bf16[1]", "all_gather(x) @ w.T + c"),
    "one number as a matrix": ("bf16[1, 1]", "all_gather(x) @ w.T * c"),
    "a row as a matrix": ("bf16[1, F @ tp]", "all_gather(x) @ w.T + c"),
}


@pytest.mark.parametrize("title", BROADCASTS)
def test_a_dimension_of_size_one_is_broadcast(title):
    declared, value = BROADCASTS[title]
    tensors = f"tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\ntensor c : {declared}\n"
    body = f"op f(x, w, c) -> y {{ y = {value} with {{ {SMALL} via = ldst, buffers = 2 }} }}\n"
    assert failures(run(HEAD + tensors + body, 2, (37, 3), 1)) == []


def test_a_column_that_is_computed_is_read_by_its_pitch():
    tensors = "tensor k : bf16[M, 1]\ntensor a : bf16[M, H]\n"
    assert failures(run(HEAD + tensors + "op f(k, a) -> y { c = k * 0.5\n y = a * c }\n", 2, (37, 3), 1)) == []


PROGRAMS = {
    "a local op": "op f(x) -> y { y = gelu(x) + x }",
    "a bare gather": "op f(x) -> y { y = all_gather(x) }",
    "a bare reduce_scatter": "op f(p) -> y { y = reduce_scatter(p, M) }",
    "a bare all_reduce, scaled": "op f(p) -> y { y = all_reduce(p) * 0.5 }",
    "one value under two names": "op f(x, w) -> y, z {\n"
    " y = all_gather(x) @ w.T with { tile = 16x16x16 }\n z = y\n}",
    "a gather that is a result and an operand": "op f(x, w) -> y, z {\n"
    " g = all_gather(x) with { chunk = 8 along M }\n"
    " y = g @ w.T with { tile = 16x16x16 }\n z = g\n}",
    "a gather of what was reduced": "op f(p, w) -> y {\n r = reduce_scatter(p, M)\n"
    " y = all_gather(r) @ w.T with { tile = 16x16x16, via = ldst, place = own_sms(1) }\n}",
    "a gather and a reduction around two products": "op f(x, w) -> y {\n"
    " y = reduce_scatter((all_gather(x) with { via = ldst, place = own_sms(1) }) @ w.T @ w, M)"
    " with { tile = 16x16x16 }\n}",
    "a partial result": "op f(a, b) -> y { y = a @ b.T with { tile = 16x16x16 } }",
}


@pytest.mark.parametrize(("title", "seed"), [(title, i % 2) for i, title in enumerate(PROGRAMS)])
def test_a_program(title, seed):
    tensors = (
        "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\ntensor p : bf16[M, H] sum tp\n"
        "tensor a : bf16[M, F @ tp]\ntensor b : bf16[H, F @ tp]\n"
    )
    assert failures(run(HEAD + tensors + PROGRAMS[title] + "\n", 2, (37, 3), seed)) == []


def test_a_wrong_kernel_is_seen():
    """The mutant of this file: a bias added twice gives other numbers than float64."""
    from emitted import built

    _, schedule, module, title = built(SCATTER.format(t="bf16", p=SMALL + "buffers = 2"))
    wrong = SCATTER.format(t="bf16", p=SMALL + "buffers = 2").replace("+ b with", "+ b + b with")
    typed = built(wrong)[0].ops[0]
    from chunkdsl.verify.simulate import run_op

    rows = run_op(module, title, schedule, schedule.ops[0], typed, 2, 0, [{"M": 9}], pointers=False)
    assert [r.check for r in rows if not r.passed] == ["y = float64 on small integers, equal"]
