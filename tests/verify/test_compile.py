"""Ahead-of-time compilation of a module, and what the row says when a kernel does not compile or breaks a rule."""

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source
from chunkdsl.verify.compile import TARGETS, compile_target
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 1..256
tensor x : bf16[M @ tp, 128]
tensor w : bf16[128 @ tp, 128]
op proj(x, w) -> y { y = all_gather(x) @ w.T with { tile = 64x64x64, chunk = 64 along M, via = ldst } }
"""


def rendered(spec):
    checked = check_source(Source("small.chunk", spec))
    assert not checked.report.failed, checked.report.diagnostics
    return render_module(checked.schedule, (2,))


@pytest.fixture(scope="module")
def text():
    return rendered(SPEC)


def row(text, folder, target="sm_90"):
    return compile_target(load(text, folder, "made"), "Small", text, 2, target)


def test_the_targets_are_those_of_the_modules():
    assert TARGETS == ("sm_80", "sm_90", "sm_100", "gfx942")


def test_a_kernel_that_does_not_compile_is_a_failed_row(text, tmp_path):
    broken = text.replace("acc = tl.dot(", "acc = tl.no_such_dot(")
    assert broken != text
    made = row(broken, tmp_path)
    assert not made.passed and made.check == "compiles for sm_90"
    assert "no_such_dot" in made.detail and len(made.detail.splitlines()) < 60


def test_a_release_without_a_barrier_is_found_by_a_lint(text, tmp_path):
    head, publish = text.split("def set_flag(")
    made = row("def set_flag(".join([head, publish.replace("    tl.debug_barrier()\n", "", 1)]), tmp_path)
    assert not made.passed and made.check == "compiles for sm_90 and passes the lints"
    assert "barrier" in made.detail and len(made.detail.splitlines()) <= 4, made.detail


def test_kernels_of_specialised_warps_are_compiled_in_each_of_their_tiles(tmp_path):
    """For the GPUs that have them, where they are what runs."""
    text = rendered(SPEC.replace("64x64x64", "128x256x64").replace("64 along M, via = ldst", "64 along M"))
    assert row(text, tmp_path).passed
    for old, new in (("gl.warp_specialize([", "gl.no_such(["), ("[16, BN, 16]", "[16, 256, 16]")):  # of narrow ones
        assert text.count(old) == 1
        made = row(text.replace(old, new), tmp_path)
        assert not made.passed and "proj_y_warps" in made.detail
