"""Users' kernels in ops that communicate over one axis of a mesh of two: the other one cuts rows as well."""

import pytest
from kernel_specs import COPY, KERNELS, ROOT, checked
from test_fused_kernels import failures

HEAD = """
mesh dp[2], tp[2]
dim M = 1..256
dim K = 96
dim N = 160
tensor x : bf16[M @ (dp, tp), K]
tensor w : bf16[K, N @ tp]
tensor a : bf16[M @ dp, K @ tp]
tensor v : bf16[K @ tp, N]
tensor g : bf16[K]
tensor t : bf16[K, M @ dp]
"""
NORM = KERNELS["rms_norm"].replace("[m, n]", "[m, 96]").replace("[n]", "[96]").replace("cols = n\n", "cols = 96\n")
GEMM = HEAD + KERNELS["matmul_2d"]
SPECS = {
    "gathered": GEMM + f"op f_op(x, w) -> y {{ y = f(all_gather(x, over = tp), w) with {{ {COPY} }} }}",
    "reduced": GEMM + "op f_op(a, v) -> y { y = reduce_scatter(f(a, v), M) with { chunk = 24 along M, side = pull } }",
    "dealt": HEAD + NORM
    + "op f_op(a, g) -> y { y = f(all_to_all(a, K -> M), g) with { chunk = 24 along M } }",
}  # fmt: skip


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", SPECS)
def test_a_kernel_beside_another_axis(name, tmp_path):
    calls = (9, 1) if name == "gathered" else (9,)  # rows of a shard
    assert failures(SPECS[name], tmp_path, (2, 2), dims=calls) == []


def test_a_mutant_is_caught(tmp_path):
    change = ("if source != rank:\n                word", "if source == W:\n                word")
    assert failures(SPECS["gathered"], tmp_path, (2, 2), change, (9,))


def test_rows_that_another_axis_cuts_are_not_added_up_unasked():
    text = GEMM + f"op f_op(x, t) -> y {{ y = f(t, all_gather(x, over = tp)) with {{ {COPY} }} }}"
    made = checked(text.replace(" sum k", ""))
    assert [d.code for d in made.report.diagnostics] == ["CD238"]


def test_both_axes_together_are_refused():
    text = GEMM + "tensor u : bf16[K, N]\nop f_op(x, u) -> y { y = f(all_gather(x, over = (dp, tp)), u) }"
    assert any("two axes together" in d.message for d in checked(text).report.diagnostics)
