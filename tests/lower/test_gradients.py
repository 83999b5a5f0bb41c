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
        ("op f(x, w) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw with { buffers = 1 }", "CD290"),
        ("op f(x) -> y { y = all_gather(x) }\ngradient f -> dx", "CD286"),
        ("op f(x, w, b) -> y { y = all_gather(x) @ w.T }\ngradient f -> dx, dw, db", "CD286"),
    ],
)
def test_what_has_no_gradient_is_refused_at_its_place(text, code):
    checked = check_source(Source("grad.chunk", HEAD + text))
    assert [d.code for d in checked.report.diagnostics] == [code]
