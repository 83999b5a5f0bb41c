"""Kernels as Triton's tutorials have them: what is found, what runs on simulated ranks, what compiles."""

import pytest
from evidence_table import body_of, compiled
from kernel_specs import ROOT, checked
from test_fused_kernels import failures
from tutorial_specs import SPECS

from chunkdsl.kernels.source import KernelSource
from chunkdsl.kernels.turns import candidate_loops

LOOP = "@triton.jit\ndef kernel(x_ptr, T):\n    for k in range(0, T, 2):\n        k = {}\n        tl.load(x_ptr + k)\n"


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", ["the same, reduced", "attention, causal"])
def test_a_tutorials_kernel_fused(name, tmp_path):
    assert failures(SPECS[name], tmp_path, 2) == []


@pytest.mark.parametrize("name", ["attention", "attention, by pointers"])
def test_keys_and_values_of_a_tutorials_attention_are_awaited_in_its_loop(name):
    body = body_of(SPECS[name])[1].body
    assert [(t.lead, t.each) for t in body.turns] == [(1, 16)] and len(body.arriving) == 2 and len(body.results) == 2


def test_its_loop_compiles():
    assert compiled(checked(SPECS["attention, causal"]), "sm_90") == []


@pytest.mark.parametrize("value, divides", [
    ("tl.multiple_of(k, 2)", True), ("tl.multiple_of(T, 2)", False), ("k + 1", False),
])  # fmt: skip
def test_a_hint_about_the_variable_leaves_a_loop_as_it_is(value, divides):
    text = "import triton\nimport triton.language as tl\n\n\n" + LOOP.format(value)
    loops = candidate_loops(KernelSource("k.py", ROOT / "k.py", text, "kernel"))
    assert bool(loops) == divides
