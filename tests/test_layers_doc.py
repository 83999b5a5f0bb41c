"""The snippets of docs/layers.md, executed on two ranks (gloo, fallback path) against the layers that they replace."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runtime"))
from forked_ranks import run_in_turn  # noqa: E402

DOCUMENT = (ROOT / "docs" / "layers.md").read_text(encoding="utf-8")
SMALL = {"14336": "32", "4096": "16", "6144": "32", "bf16": "f32", "512 along": "4 along"}


def module(name, text):
    """The module with small sizes in f32, whose tiles do not matter on this path."""
    for large, small in SMALL.items():
        text = text.replace(large, small)
    checked = check_source(Source(f"{name}.chunk", re.sub(r"tile = \w+", "tile = 16x16x16", text)))
    assert not checked.report.failed, checked.report.diagnostics
    return render_module(checked.schedule, (2,))


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    spec = re.search(r"^```chunk\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)[1]
    (folder / "layers.py").write_text(module("layers", spec), encoding="utf-8")
    text = (ROOT / "specs" / "transformer_layer.chunk").read_text(encoding="utf-8")
    (folder / "transformer_layer.py").write_text(module("transformer_layer", text), encoding="utf-8")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    snippets = (ROOT / "tests" / "layer_snippets.py", 2, folder, ())
    (ended,) = run_in_turn([snippets], environment, ["triton", "torch._dynamo.variables"])
    assert [status for status, _, _ in ended] == [0, 0], "\n".join(err[-3000:] for _, _, err in ended)
    first, second = (json.loads(out.splitlines()[-1]) for _, out, _ in ended)
    assert first == second
    return first


@pytest.mark.parametrize("library", ["whole_layer", "vllm_shapes", "unsummed", "megatron", "torchtitan", "vllm"])
def test_a_snippet_agrees_with_what_it_replaces(said, library):
    if said[library] != "agrees":
        assert library in ("megatron", "torchtitan", "vllm")
        pytest.skip(said[library])
