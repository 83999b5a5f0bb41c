"""Compiling for a named target, alone and in bulk, in a process that also interprets the same kernel."""

import sys

import pytest
import torch
import triton

from chunkdsl.aot.pool import compile_all
from chunkdsl.aot.record import blank, record_use
from chunkdsl.aot.targets import TARGETS, CompileError, compile_kernel, find_target
from chunkdsl.interp.switch import interpreting


def _publish(faults, form="barrier"):
    args = {"x": blank((4096,), torch.bfloat16), "y": blank((4096,), torch.bfloat16), "flag": blank((4,), torch.int32)}
    return record_use(faults.publish, {**args, "epoch": 3}, {"FORM": form}, 4, 3)


@pytest.mark.parametrize("target", list(TARGETS))
def test_compiles_for_every_target(faults, target):
    compiled = compile_kernel(_publish(faults), target)
    assert compiled.target == target and compiled.kernel == "publish" and "tt.func" in compiled.ttgir
    assert bool(compiled.ptx) is find_target(target).nvidia and bool(compiled.amdgcn) is not bool(compiled.ptx)
    assert compiled.spills == 0 and 8 <= compiled.registers <= 255 and compiled.warnings == ()


def test_counts_registers_and_spills(build):
    heavy = build("hold", "sm_90", warps=1, SIZE=8192)
    assert heavy.registers > 200 and heavy.spills > 0
    assert build("dot_loop", "sm_90", FORM="plain", BLOCK=64).shared == 3 * 2 * 64 * 64 * 2


def test_unknown_targets_are_named(faults):
    with pytest.raises(ValueError, match="unknown target 'sm_75'; known are sm_80, sm_90, sm_100, gfx942"):
        compile_kernel(_publish(faults), "sm_75")


def test_a_refusal_carries_the_compilers_words(faults):
    args = {"x": blank((8,), torch.bfloat16), "y": blank((8,), torch.bfloat16), "flag": blank((4,), torch.int32)}
    use = record_use(faults.consume, {**args, "epoch": 3}, {"FORM": "one_thread"}, 4, 3)
    with pytest.raises(CompileError, match=r"consume for gfx942: .*\n(.|\n)*error"):
        compile_kernel(use, "gfx942")


def test_compiles_before_and_after_interpreting(faults):
    x, y = torch.arange(4096).bfloat16(), torch.zeros(4096, dtype=torch.bfloat16)
    flag = torch.zeros(4, dtype=torch.int32)
    first = compile_kernel(_publish(faults, "local"), "sm_90")
    with interpreting() as interpreter:
        interpreter.run(faults.publish, (1,), x=x, y=y, flag=flag, epoch=3, FORM="local")
    assert torch.equal(x, y) and flag.tolist() == [1, 0, 0, 0]
    assert compile_kernel(_publish(faults, "local"), "sm_90") == first
    assert compile_kernel(_publish(faults, "narrow"), "sm_80").ptx


def test_equal_uses_are_compiled_once_and_in_order(faults):
    uses = [_publish(faults), _publish(faults), _publish(faults, "bare")]
    made = compile_all(uses, ["sm_90", "sm_80"])
    assert [(u.key, c.target) for u, c in made] == [(u.key, t) for u in (uses[0], uses[2]) for t in ("sm_90", "sm_80")]


def test_workers_agree_with_this_process(faults, monkeypatch):
    monkeypatch.setattr("chunkdsl.aot.pool.START_COST", 1)
    uses = [_publish(faults, "bare")]
    away = compile_all(uses, ["sm_90", "gfx942"], processes=2)
    here = compile_all(uses, ["sm_90", "gfx942"], processes=1)
    assert [c for _, c in away] == [c for _, c in here]


def test_kernels_that_workers_cannot_find_are_compiled_here(faults, monkeypatch):
    monkeypatch.setattr("chunkdsl.aot.pool.START_COST", 0)
    monkeypatch.setattr("chunkdsl.aot.pool.ProcessPoolExecutor", None)  # calling it would fail
    monkeypatch.delattr(sys.modules[faults.__name__], "publish_tma")

    @triton.jit
    def local(x):
        pass

    use = record_use(local, {"x": blank((4,), torch.int32)}, {}, 4, 3)
    assert [c.kernel for _, c in compile_all([use], ["sm_90", "sm_80"])] == ["local", "local"]
