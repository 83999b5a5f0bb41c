"""Kernels that take tensor descriptors made on the host: fused on simulated ranks, compiled, refused; mutants."""

import pytest
import torch
from descriptor_specs import PRODUCT, SPECS, gathered, reduced
from evidence_table import body_of, compiled
from kernel_specs import ROOT, checked
from kernel_specs import gathered as by_pointer
from test_fused_kernels import failures

from chunkdsl.runtime.descriptors import described, even_rows

MUTANTS = {
    "rows of the other slot": ("k_a_desc + slot *", "k_a_desc + (1 - slot) *"),
    "bounds of one shard": ("shape=[k_size0_of_a_desc,", "shape=[k_size0_of_a_desc // 2,"),
    "signals before the stores have arrived": ("            bulk_wait(NVIDIA)\n", "            epoch = epoch\n"),
}
REFUSED = {  # what is said of the block [BM, BK] of a
    "[BM]": "a block of 1 dimensions for a tensor of 2",
    "[BM, 48]": "a block that no tensor descriptor has",
    "[BM, 4]": "a block of `A` has rows of 8 bytes",
    "[BX, BK]": "`BX` is no size",
    "": "takes a tensor descriptor that is made on the host",
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", ["gathered, two slots", "reduced by a ring", "attention"])
def test_a_kernel_that_takes_descriptors(name, tmp_path):
    assert failures(SPECS[name], tmp_path, 2) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, tmp_path):
    text = SPECS["gathered, two slots"] if "slot" in name else reduced() if "signals" in name else gathered()
    assert failures(text, tmp_path, 2, MUTANTS[name], (53,))


def test_loops_over_descriptors_wait_for_their_rows():
    assert [(t.lead, t.each) for t in body_of(SPECS["attention"])[1].body.turns] == [(1, 16)]


def test_it_compiles():
    assert compiled(checked(SPECS["gathered, two slots"]), "sm_90") == []


@pytest.mark.parametrize("block", REFUSED)
def test_a_block_that_does_not_fit(block):
    found = checked(gathered(PRODUCT.replace("a_desc[BM, BK]", f"a_desc{block}"))).report.diagnostics
    assert len(found) == 1 and REFUSED[block] in found[0].message


@pytest.mark.parametrize("text, what", [
    (by_pointer("matmul_2d").replace("a_ptr :", "a_ptr[BM, BK] :"), "uses a tensor descriptor like a pointer"),
    (gathered().replace("dim K = 96", "dim K = 100"), "takes A by a tensor descriptor, and its rows are 100 elements"),
    (gathered().replace("dim K = 96", "dim K = 1..96"), "a matrix whose row length is a run-time size"),
])  # fmt: skip
def test_tensors_of_which_no_descriptor_is_made(text, what):
    found = checked(text).report.diagnostics
    assert len(found) == 1 and what in found[0].message


@pytest.mark.parametrize("columns", [16, 10, 0])
def test_descriptors_of_any_tensor(columns):
    tensor = torch.arange(3.0 * columns).view(3, columns)
    held = even_rows(tensor)
    made = described(held, held.shape, [4, 8])
    assert torch.equal(held, tensor) and (held is tensor) == (columns != 10)
    assert [s % 4 for s in made.strides] == [0, 1] and made.block_shape == [4, 8]
    assert made.base.numel() == 3 * columns if columns else made.shape == [4, 8]
