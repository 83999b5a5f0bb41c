"""Derived backward passes against torch's own autograd, on whole tensors in float64."""

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.verify.reference import evaluate

HEAD = """mesh tp[2] over nvlink
dim M = 8..64 step 8
dim H = 32
dim F = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor v : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor e : bf16[H, F @ tp]
tensor r : bf16[M @ tp, H]
tensor c : bf16[H]
tensor p : bf16[M, H] sum tp
tensor n : bf16[M, F @ tp]
tensor k : bf16[H, F @ tp]
tensor t : bf16[2, F @ tp, H]
tensor s : bf16[F, H @ tp]
tensor o : bf16[H, F]
"""
OPS = {
    "gather": "op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw",
    "gather saved": "op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw saves w, x",
    "weight as it stands": "op f(x, k) -> y { y = all_gather(x) @ k }\ngradient f -> dx, dk",
    "bias": "op f(x, w, b) -> y { y = all_gather(x) @ w.T + b }\ngradient f -> dx, dw, db",
    "scatter": "op f(n, e) -> y { y = reduce_scatter(n @ e.T, M) }\ngradient f -> dn, de",
    "all_reduce": "op f(n, e) -> y { y = all_reduce(n @ e.T) }\ngradient f -> dn, de",
    "residual": "op f(n, e, r, c) -> y { y = reduce_scatter(n @ e.T, M) + r + c }\ngradient f -> dn, de, dr, dc",
    "mlp": "op f(x, w, b, e) -> y { h = gelu(all_gather(x) @ w.T + b)\n y = reduce_scatter(h @ e.T, M) }\n"
    "gradient f -> dx, dw, db, de",
    "mlp saved": "op f(x, w, b, e) -> y { u = all_gather(x) @ w.T + b\n y = reduce_scatter(gelu(u) @ e.T, M) }\n"
    "gradient f -> dx, dw, db, de saves x, u",
    "swiglu": "op f(x, w, v, e) -> y { g = all_gather(x)\n h = swiglu(g @ w.T, g @ v.T)\n"
    " y = reduce_scatter(h @ e.T, M) }\ngradient f -> dx, dw, dv, de",
    "swiglu saved": "op f(x, w, v, e) -> y { g = all_gather(x)\n s = g @ w.T\n t = g @ v.T\n"
    " y = reduce_scatter(swiglu(s, t) @ e.T, M) }\ngradient f -> dx, dw, dv, de saves s, t",
    "functions": "op f(n) -> y { y = tanh(n) + silu(n) * 2 - relu(-n) / 4 }\ngradient f -> dn",
    "quotient": "op f(n, b) -> y { y = n / b - b }\ngradient f -> dn, db",
    "products of elements": "op f(n, b) -> y { y = n * b * n }\ngradient f -> dn, db",
    "two results": "op f(x, w) -> y, z { y = all_gather(x) @ w.T\n z = relu(y) }\ngradient f -> dx, dw saves y",
    "packed": "op f(x, t, e) -> y { g = all_gather(x)\n h = swiglu(g @ t[0].T, g @ t[1].T)\n"
    " y = reduce_scatter(h @ e.T, M) }\ngradient f -> dx, dt, de",
    "a packed matrix used twice": "op f(x, t) -> y { g = all_gather(x)\n a = g @ t[1].T\n b = relu(g) @ t[1].T\n"
    " y = (g @ t[0].T) * a + b }\ngradient f -> dx, dt",
    "all_to_all, then a product": "op f(x, s) -> y { y = reduce_scatter(all_to_all(x, M -> H) @ s.T, M) }\n"
    "gradient f -> dx, ds",
    "all_to_all onto rows": "op f(n, o) -> y { y = all_to_all(n, F -> M) @ o.T }\ngradient f -> dn, do",
    "all_to_all of a product": "op f(x, o) -> y { y = all_to_all(x @ o, M -> F) }\ngradient f -> dx, do",
    "norm": "op f(x, c, w) -> y { y = all_gather(rms_norm(x, c)) @ w.T }\ngradient f -> dx, dc, dw",
    "norm of gathered rows": "op f(x, c, w) -> y { y = rms_norm(all_gather(x), c + 1, eps = 0.01) @ w.T }\n"
    "gradient f -> dx, dc, dw",
    "residual and norm": "op f(n, e, r, c) -> s, y { s = reduce_scatter(n @ e.T, M) + r\n y = rms_norm(s, c) * r }\n"
    "gradient f -> dn, de, dr, dc saves s, n",
    "functions of a vector": "op f(x, c) -> y { y = rms_norm(x, 1 - c * c / 2) * tanh(c) }\ngradient f -> dx, dc",
    "norm around a layer": "op f(x, c, w, e) -> y { h = gelu(all_gather(rms_norm(x, c)) @ w.T)\n"
    " y = reduce_scatter(h @ e.T, M) + x }\ngradient f -> dx, dc, dw, de",
    "partial": "op f(p, c) -> y { y = all_reduce(p) * c }\ngradient f -> dp, dc",
}


def program(text):
    checked = check_source(Source("grad.chunk", HEAD + text))
    assert not checked.report.diagnostics, checked.report.diagnostics
    return checked


@pytest.mark.parametrize("name", OPS)
def test_a_derived_pass_agrees_with_autograd(name):
    made = program(OPS[name]).program
    (gradient,) = made.gradients
    ops = {op.name: op for op in made.ops}
    g = torch.Generator().manual_seed(0)
    sizes = {"M": 16} | made.constants

    def draw(type):
        shape = [sizes[str(s)] if not isinstance(s, int) else s for s in type.shape]
        return torch.randn(shape, generator=g, dtype=torch.float64) + 0.1

    inputs = {p.name: draw(p.value.type).requires_grad_() for p in ops["f"].params}
    outputs = list(evaluate(ops[gradient.forward], inputs).values())
    seeds = [draw(value.type) for _, value in ops["f"].results]
    wanted = torch.autograd.grad(outputs[: len(seeds)], list(inputs.values()), seeds)
    places = {"gradient": seeds, "input": list(inputs.values()), "output": outputs}
    backward = ops[gradient.backward]
    given = {p.name: places[kind][i].detach() for p, (kind, i) in zip(backward.params, gradient.wanted, strict=True)}
    got = evaluate(backward, given)
    assert list(got) == [name for name, _ in backward.results] and len(got) == len(wanted)
    for mine, theirs in zip(got.values(), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", OPS)
def test_a_gradient_is_placed_as_its_pairing_says(name):
    """Shard for Shard and Replicate for Partial; Partial for a Replicate parameter, each rank's tokens' share."""
    made = program(OPS[name]).program
    ops = {op.name: op for op in made.ops}
    dual = {"Shard": "Shard", "Partial": "Replicate", "Replicate": "Partial"}
    backward = ops[made.gradients[0].backward]
    for p, (_, value) in zip(ops["f"].params, backward.results, strict=True):
        (before,), (after,) = p.value.type.placements, value.type.placements
        if name != "partial":  # there a Replicate result's own gradient is whole on every rank
            assert type(after).__name__ == dual[type(before).__name__]
            assert getattr(before, "dim", None) == getattr(after, "dim", None)
        assert value.type.shape == p.value.type.shape


def test_what_is_saved_is_not_computed_again():
    kept = program(OPS["mlp saved"])
    again = program(OPS["mlp saved"].replace(" saves x, u", ""))
    first, second = (
        [s.text for op in c.program.ops if op.name == "f_backward" for s in op.statements] for c in (kept, again)
    )
    assert not any("again" in t for t in first) and any(t.startswith("again = ") for t in second)
    assert [op.name for op in kept.program.ops] == ["f", "f_forward", "f_backward"]
    assert [op.name for op in again.program.ops] == ["f", "f_backward"]


def test_a_statement_reads_like_one_of_the_language():
    made = program(OPS["mlp saved"]).program
    backward = next(op for op in made.ops if op.name == "f_backward")
    assert [s.text for s in backward.statements] == [
        "d = (all_gather(dy) @ e) * gelu_grad(u)",
        "dx = reduce_scatter(d @ w)",
        "dw = d.T @ all_gather(x)",
        "db = sum_rows(d)",
        "de = all_gather(dy).T @ gelu(u)",
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient g -> dx, dw", "CD240"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw saves z", "CD240"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw with { algorithm = one_shot }", "CD265"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw with { chunk = 8 along F }", "CD266"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw with { via = copy_engine }", "CD601"),
        ("op f(x, t) -> y { y = all_gather(x) @ t[1].T }\ngradient f -> dx, dt", "CD286"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw as f16", "CD291"),
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw as f31", "CD243"),
        ("op f(x) -> y { y = all_gather(x) }\ngradient f -> dx", "CD286"),
        ("op f(x, w, b) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw, db", "CD286"),
    ],
)
def test_what_has_no_gradient_is_refused_at_its_place(text, code):
    checked = check_source(Source("grad.chunk", HEAD + text))
    assert [d.code for d in checked.report.diagnostics] == [code]


def policies(text):
    """{(kind, statement): policy} of the backward op's collectives and products."""
    backward = next(op for op in program(text).program.ops if op.name == "f_backward")
    found, seen = {}, set()
    for statement in backward.statements:
        stack = [statement.value]
        while stack:
            value = stack.pop()
            if value not in seen:
                seen.add(value)
                found[value.kind, statement.target] = value.policy
                stack += value.args
    return found


SAID = "{ chunk = 8 along M, via = ldst, place = own_sms(2), tile = 16x16x16, stages = 2, buffers = 2, "
SAID += "order = arrival }"


def test_the_backward_pass_inherits_what_serves_it():
    found = policies(
        "op f(x, w, e) -> y { h = all_gather(x) @ w.T with " + SAID + "\n"
        " y = reduce_scatter(gelu(h) @ e.T, M) with { side = pull, via = ldst, place = co_located, wire = f32 } }\n"
        "gradient f -> dx, dw, de"
    )
    scatter = found["reduce_scatter", "dx"]
    assert (scatter.chunk.count, scatter.via, scatter.place.programs, scatter.buffers) == (8, "ldst", 2, 2)
    assert scatter.order is None and scatter.side is None  # which end issues, and in which order, turns around
    gather = found["all_gather", "d"]
    assert gather.via == "ldst" and gather.place is gather.side is gather.wire is None
    assert found["matmul", "dx"].tile == found["matmul", "dw"].tile == (16, 16, 16)
    assert found["matmul", "dw"].stages == 2
    assert found["matmul", "de"].tile is None
    assert found["all_gather", "again"].order == "arrival"  # computed again as it was computed


def test_two_buffers_are_not_inherited_by_a_copy_engine():
    text = "op f(n, e) -> y { y = reduce_scatter(n @ e.T, M) with { buffers = 2, chunk = 2 per shard } }\n"
    gather = policies(text + "gradient f -> dn, de")["all_gather", "dn"]
    assert gather.buffers is None and gather.chunk.count == 2 and gather.via is None


def test_the_policy_of_the_gradient_goes_over_what_is_inherited():
    found = policies(
        "op f(x, w) -> y { y = all_gather(x) @ w.T with " + SAID + " }\n"
        "gradient f -> dx, dw with { route = ring, chunk = 16 along M, tile = 32x32x16 }"
    )
    for kind, target in (("reduce_scatter", "dx"), ("all_gather", "dw")):
        policy = found[kind, target]
        assert (policy.route, policy.chunk.count, policy.via, policy.place) == ("ring", 16, None, None)
    assert found["matmul", "dw"].tile == (32, 32, 16) and found["matmul", "dw"].stages == 2


def test_what_is_asked_for_in_f32_is_not_rounded_on_the_way():
    made = program(
        "op f(x, t, b) -> y { g = all_gather(x)\n a = g @ t[0].T\n c = g @ t[1].T\n y = a * c + b }\n"
        "gradient f -> dx as f32, dt as f32, db as f32 saves x"
    ).program
    backward = next(op for op in made.ops if op.name == "f_backward")
    assert {value.type.dtype.value for _, value in backward.results} == {"f32"}
    texts = [s.text for s in backward.statements]
    assert "dt = stack(cast((d_.T @ all_gather(x)), f32), cast((d.T @ all_gather(x)), f32))" in texts
    assert "dx = reduce_scatter(cast((part + part_), f32))" in texts and "db = sum_rows(dy)" in texts


TWO_AXES = """mesh dp[2] over rdma, tp[2] over nvlink
dim M = 8..64 step 8
dim H = 32
dim F = 48
tensor x : bf16[M @ (dp, tp), H]
tensor w : bf16[F @ tp, H]
tensor v : bf16[H, F @ tp]
tensor c : bf16[H]
tensor q : bf16[F @ (dp, tp), H]
"""


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        (
            "op f(x, w, v, c) -> y { h = gelu(all_gather(x, over = tp) @ w.T)\n"
            " y = reduce_scatter(h @ v.T, M, over = tp) + c }\ngradient f -> dx, dw, dv, dc",
            ["Shard(0) Shard(0)", "Partial Shard(0)", "Partial Shard(1)", "Partial Partial"],
        ),
        (
            "op f(x, q) -> y { y = all_gather(x, over = (dp, tp)) @ q.T }\ngradient f -> dx, dq",
            ["Shard(0) Shard(0)", "Shard(0) Shard(0)"],
        ),
    ],
)
def test_on_two_axes_a_weight_gradient_is_partial_over_those_that_sharded_the_tokens(text, placed):
    checked = check_source(Source("grad.chunk", TWO_AXES + text))
    assert not checked.report.diagnostics, checked.report.diagnostics
    backward = next(op for op in checked.program.ops if op.name == "f_backward")
    assert [" ".join(map(str, value.type.placements)) for _, value in backward.results] == placed
