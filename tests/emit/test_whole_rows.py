"""Norms outside of small all-reduces: in which launches they run, what they compute there, faults that are found."""

from pathlib import Path

import pytest
from emitted import HEAD, SMALL, built, failures, run

from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

PARTS = HEAD + "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\ntensor v : bf16[H, F @ tp]\n"
PARTS += "tensor g : bf16[H]\ntensor r : bf16[M, H]\ntensor c : bf16[1, H]\ntensor o : bf16[H, F]\ntensor k : bf16[F]\n"
POLICY = f" with {{ {SMALL}via = ldst, place = own_sms(2), buffers = 2 }} }}\n"
GATHERED = POLICY.replace("tile = 16x16x16, ", "")
DEALT = " with { tile = 16x16x16, via = ldst, chunk = 10 along M, buffers = 2 } }\n"
NORMS = {
    "around a layer": (
        "op f(x, g, w, v) -> y { h = gelu(all_gather(rms_norm(x, g, eps = 0.01)) @ w.T)" + POLICY[:-2]
        + "\n y = rms_norm(reduce_scatter(h @ v.T, M) + x, g) * 2" + POLICY,
        {"f_h_x_shard": (16, 64), "f_h": (16, 16), "f_y_partial": (16, 16), "f_y_sum": (16, 64)},
    ),
    "of gathered rows, and of a row": (
        "op f(x, g, c) -> y { y = rms_norm(rms_norm(all_gather(x), g) * rms_norm(c, g), g)" + GATHERED,
        {"f_y_norm": (16, 64), "f_y": (16, 64)},
    ),
    "of a product that is dealt out": (
        "op f(r, v, k) -> y { y = rms_norm(all_to_all(r @ v, F -> M) + 1, k)" + DEALT,
        {"f_y_part": (16, 16), "f_y_whole": (16, 128)},
    ),
    "of a product": (
        "op f(x, o, k) -> y { y = x * 0.5 @ o + rms_norm(gelu(x @ o), k) with { tile = 16x16x16 } }\n",
        {"f_y_rows": (16, 16), "f_y_norm": (16, 128), "f_y_left": (16, 256), "f_y": (16, 16)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_runs_where_tiles_have_whole_rows(name):
    text, tiles = NORMS[name]
    _, schedule, _, _ = built(PARTS + text)
    assert {n.name: (n.tiling.bm, n.tiling.bn) for n in schedule.ops[0].launches} == tiles
    assert failures(run(PARTS + text, 2, (37, 1), seed=1)) == []


ROWS = HEAD + "tensor x : bf16[M @ tp, H]\ntensor g : bf16[H]\nop f(x, g) -> y { y = x + rms_norm(x, g) }\n"
ROWS += "gradient f -> dx, dg as f32\n"


def backward(module, size=37):
    program, schedule, _, title = built(ROWS)
    op, typed = (next(o for o in ops if o.name == "f_backward") for ops in (schedule.ops, program.ops))
    assert [n.text for n in op.launches] == ["d = dy * rms_norm(x, 1)", "dx = dy + rms_norm_grad(x, dy * g)",
                                             "dg = sum_rows(d)"]  # fmt: skip
    rows = run_op(module, title, schedule, op, typed, 2, 0, [{"M": size}], pointers=False)
    return {r.check.split(" within")[0] for r in rows if not r.passed}


FAULTS = {
    "the mean counts columns that are not there": (
        "keep_dims=True) / width + eps", "keep_dims=True) / x.shape[1] + eps", {"dx = float64", "dg = float64"}
    ),
    "the gradient through the mean is left out": ("scale * (d - y * (", "scale * (d - 0 * y * (", {"dx = float64"}),
    "nothing": ("(x, dy * g)", "(x, dy)", set()),  # in a comment: what is right is not refused
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_gradient_of_a_norm_is_found(name, tmp_path):
    right, wrong, found = FAULTS[name]
    text = Path(built(ROWS)[2].__file__).read_text(encoding="utf-8")
    assert right in text
    assert backward(load(text.replace(right, wrong), tmp_path, "rows")) == found
