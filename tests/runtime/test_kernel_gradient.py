"""A user's kernel in training, as docs/training.md writes it: a backward pass of its own ops, joined by autograd."""

import re
from pathlib import Path

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Users' kernels") :]
SPEC, PROGRAM = (re.search(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL).group(1) for kind in ("chunk", "python"))


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_gradients_of_a_kernel_by_ops_of_its_own(tmp_path):
    checked = check_source(Source("linear.chunk", SPEC))
    assert not checked.report.diagnostics, checked.report.diagnostics
    module = load(render_module(checked.schedule, (2,)), tmp_path, "linear").Linear
    scope = {"torch": torch}
    exec(PROGRAM[: PROGRAM.index("h = Up.apply")], scope)
    rows, g = 21, torch.Generator().manual_seed(0)
    x, w, dh = ((torch.randn(s, generator=g) * 0.5).bfloat16() for s in ((rows, 64), (64, 96), (rows, 96)))
    dense = x.double().requires_grad_(), w.double().requires_grad_()
    wanted = torch.autograd.grad(dense[0] @ dense[1], dense, dh.double())

    def body(machine):
        m, rank = module(machine=machine), machine.rank
        mine = cut(x, 0, 2, rank).requires_grad_(), cut(w, 1, 2, rank).requires_grad_()
        h = scope["Up"].apply(m, *mine, rows)
        found = torch.autograd.grad(h, mine, cut(dh, 1, 2, rank))
        m.check()
        return found

    for rank, found in enumerate(World(2, seed=0).run(body)):
        for got, whole, dim in zip(found, wanted, (0, 1), strict=True):
            part = cut(whole, dim, 2, rank)
            torch.testing.assert_close(got.double(), part, rtol=0.02, atol=0.02 * float(whole.abs().max()))


def test_a_derived_gradient_of_a_kernel_says_how_to_write_it():
    (found,) = check_source(Source("linear.chunk", SPEC + "gradient up -> dx, dw\n")).report.diagnostics
    assert found.code == "CD286" and "docs/training.md" in found.help
