"""The examples of the rules of the Python API are run: the first gives that code, the second none."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import triton

from chunkdsl import ChunkError, ChunkSchedule, compile
from chunkdsl.check.explain import load_rules

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from fused_matmul import matmul

CODES = [c for c in load_rules() if c.startswith("CD66")]


@cache
def codes_of(text, folder):
    """Codes of what an example raises; rules share examples."""

    def grid(meta):
        return triton.cdiv(64, meta["BM"]), triton.cdiv(32, meta["BN"])

    a, b, c = (torch.empty(*s, dtype=torch.bfloat16) for s in ((64, 32), (32, 32), (64, 32)))
    space = dict(ChunkSchedule=ChunkSchedule, matmul=matmul, grid=grid, a=a, b=b, c=c)
    space["compile"] = lambda *args, **named: compile(*args, **named, folder=folder)
    try:
        exec(text, space)
    except ChunkError as error:
        return [d.code for d in error.diagnostics]
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rules")


def test_there_are_rules():
    assert CODES == ["CD660", "CD661", "CD662", "CD663"]


@pytest.mark.parametrize("code", CODES)
def test_example_of_the_api_fails(code, folder):
    assert codes_of(load_rules()[code].fails, folder) == [code]


@pytest.mark.parametrize("code", CODES)
def test_mended_example_of_the_api_is_clean(code, folder):
    assert codes_of(load_rules()[code].mended, folder) == []
