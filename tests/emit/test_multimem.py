"""Small all-reduces in the switch: the CUDA source compiles, its PTX has the forms it must have and the lint sees when
it has not; the module imports and falls back without multicast; `verify` does not call it simulated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from emitted import built

from chunkdsl.aot.lint_multimem import FORMS, STORES, lint_switch
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.render.switched import MULTIMEM, MULTIMEM_STORE
from chunkdsl.report.verification import render_table
from chunkdsl.runtime.cuda import CudaKernel, nvrtc_library
from chunkdsl.runtime.machine import Machine
from chunkdsl.sim.world import World
from chunkdsl.verify.cuda import compile_source
from chunkdsl.verify.verify import simulate_rows

SPEC = "mesh tp[2] over nvlink\ndim T = 0..9\ntensor p : {t}[T, 96] sum tp\n"
SPEC += "op f(p) -> y {{ y = all_reduce(p) with {{ via = multimem, algorithm = {a} }} }}\n"
ROUNDS = ("one_shot", "two_shot")
ROOT = Path(__file__).resolve().parent.parent.parent


def operation(dtype="bf16", algorithm="one_shot"):
    _, _, module, title = built(SPEC.format(t=dtype, a=algorithm))
    return module, title, getattr(module, title).OPS["f"]


def has_nvrtc():
    try:
        return nvrtc_library() is not None
    except OSError:
        return False


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="there is no NVRTC (pip install nvidia-cuda-nvrtc-cu12)")


@pytest.fixture(scope="module", params=ROUNDS)
def ptx(request):
    _, _, f = operation("bf16", request.param)
    return CudaKernel(f.KERNEL, f.SOURCE).compile("sm_90a")[0]


@needs_nvrtc
@pytest.mark.parametrize("dtype", MULTIMEM)
@pytest.mark.parametrize("algorithm", ROUNDS)
def test_the_source_compiles_and_passes_the_lint(algorithm, dtype):
    _, _, f = operation(dtype, algorithm)
    text, binary = CudaKernel(f.KERNEL, f.SOURCE).compile("sm_90a")
    assert lint_switch(text) == [] and binary.startswith(b"\x7fELF")
    assert text.count(MULTIMEM[dtype] + " ") == 1 and text.count("multimem.") == 1 + (algorithm == "two_shot")
    assert text.count(MULTIMEM_STORE[dtype] + " ") == (algorithm == "two_shot")


MUTANTS = {
    "not one of the forms": (".acc::f32", ""),
    "nothing is added up": ("multimem.ld_reduce", "ld_reduce"),
    "no fence.proxy.alias": ("fence.proxy.alias;", ""),
    "no barrier since": ("bar.red.and.pred", "setp.ne.and.u32"),
    "weak, cached": ("ld.relaxed.sys.global.u32", "ld.global.u32"),
    "or of a narrower scope": ("st.release.sys", "st.release.gpu"),
    "without a barrier in between": ("bar.sync", "bar.warp.sync.arrive"),
    "nothing is acquired": ("ld.acquire.sys", "ld.relaxed.sys"),
}


@needs_nvrtc
@pytest.mark.parametrize("finding", MUTANTS)
def test_the_lint_sees_what_is_wrong(ptx, finding):
    old, new = MUTANTS[finding]
    assert old in ptx and any(finding in line for line in lint_switch(ptx.replace(old, new)))


@needs_nvrtc
def test_the_lint_sees_a_store_in_the_switch_that_is_published_under_another_name():
    _, _, f = operation("bf16", "two_shot")
    faulty = f.SOURCE.replace("        other_name();\n        there =", "        there =")
    assert faulty != f.SOURCE
    text = CudaKernel(f.KERNEL, faulty).compile("sm_90a")[0]
    assert any("no fence.proxy.alias since the store" in line for line in lint_switch(text))


@needs_nvrtc
@pytest.mark.parametrize("cached", ["ld.global.nc.u32", "ld.global.ca.u32", "ld.weak.global.u32"])
def test_cached_and_weak_loads_are_seen(ptx, cached):
    assert any("weak, cached" in line for line in lint_switch(ptx.replace("ld.acquire.sys.global.u32", cached)))


@needs_nvrtc
def test_a_source_that_does_not_compile_is_told_with_its_log():
    _, _, f = operation()
    row = compile_source("f", CudaKernel(f.KERNEL, f.SOURCE.replace("const long long slot", "const slot")), "sm_90a")
    assert not row.passed and "slot" in row.detail


def test_without_nvrtc_nothing_is_called_compiled(monkeypatch):
    def none(self, target):
        raise OSError("there is no NVRTC")

    monkeypatch.setattr(CudaKernel, "compile", none)
    row = compile_source("f", CudaKernel("f", ""), "sm_90a")
    assert not row.ran and "not compiled" in row.detail


def test_the_source_has_the_form_of_its_dtype():
    """The text alone, where there is no NVRTC."""
    assert set(MULTIMEM.values()) == set(FORMS) and set(MULTIMEM_STORE.values()) == set(STORES)
    for dtype, form in MULTIMEM.items():
        source = operation(dtype)[2].SOURCE
        assert source.count(f'"{form} ') == 1 and source.count("multimem.") == 1 and "__ldg" not in source


def test_without_multicast_all_ranks_run_the_fallback_and_say_so():
    module, title, _ = operation()

    def body(machine):
        f = getattr(module, title)(machine=machine).f
        with pytest.warns(RuntimeWarning, match="there is no NVLink multicast"):
            return f(torch.full((3, 96), 1.0 + machine.rank, dtype=torch.bfloat16))

    assert all(torch.equal(y, torch.full((3, 96), 3.0, dtype=torch.bfloat16)) for y in World(2, seed=0).run(body))


def test_one_rank_without_multicast_is_enough(monkeypatch):
    module, title, _ = operation()

    answers = iter(["no NVRTC"])  # to the first question of this kind

    def vote(self, value):
        return [value, next(answers, None)] if value is None else [value] * 2

    monkeypatch.setattr(RecordingMachine, "vote", vote)
    f = getattr(module, title)(machine=RecordingMachine()).f
    assert f.why_not == "ranks [1] cannot add in the switch: no NVRTC"


@pytest.mark.parametrize("target, why", [("sm_89", "no multimem"), ("gfx942", "no multimem"), ("sm_90", "no NVRTC")])
def test_a_machine_that_cannot_load_it_says_why(target, why):
    class Kernel:
        def load(self, target):
            raise OSError("there is no NVRTC")

    machine = Machine.__new__(Machine)
    machine.target = target
    assert why in machine.load(Kernel())


def recorded(monkeypatch, rows, algorithm="one_shot"):
    """Programs, threads and arguments of the launches of a call."""
    module, title, _ = operation("bf16", algorithm)
    seen = []

    def launch(self, kernel, programs, threads, args):
        seen.append((programs, threads, [a.value for a in args]))

    monkeypatch.setattr(RecordingMachine, "launch_cuda", launch)
    machine = RecordingMachine(rank=1)
    f = getattr(module, title)(machine=machine).f
    seen.clear()
    f(torch.zeros(rows, 96, dtype=torch.bfloat16))
    return f, seen


@pytest.mark.parametrize("algorithm", ROUNDS)
def test_a_call_is_one_launch_of_the_source_whose_arguments_are_in_order(monkeypatch, algorithm):
    f, ((programs, threads, args),) = recorded(monkeypatch, 7, algorithm)
    assert (programs, threads) == (1, 128) and len(args) == f.SOURCE.split('extern "C"')[1].split("{")[0].count(",") + 1
    assert args[2:4] == [f._words2.local.data_ptr(), f.multicast]
    # world, rank, vectors, vectors of a row, of a buffer, flags of a rank, site, active
    assert args[11:] == [2, 1, 7 * 96 * 2 // 16, 12, 9 * 96 * 2 // 16, 1, 0, 1]


def test_a_call_without_rows_exchanges_nothing(monkeypatch):
    assert recorded(monkeypatch, 0)[1] == []


WITHOUT = """
import ctypes, runpy, sys, torch, triton
def refuse(*names):
    raise OSError(names)
ctypes.CDLL = refuse
runpy.run_path(sys.argv[1])
"""


def test_the_module_imports_without_a_gpu_and_without_nvrtc():
    module, _, _ = operation()
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", WITHOUT, module.__file__], check=True, env=environment)


def test_verify_says_that_it_was_not_run(tmp_path):
    program, schedule, _, title = built(SPEC.format(t="bf16", a="one_shot"))
    rows = simulate_rows(program, schedule, 2, 1, tmp_path, title, True, False, lambda text: None)
    assert [(r.check, r.ran) for r in rows] == [("simulation", False)]
    table = render_table("small.chunk", rows, 0.0)
    assert "not run" in table.splitlines()[2] and "ok" not in table.splitlines()[2].split()
    assert "0 of 1 checks hold, 1 not run" in table and "never run" in table


def test_the_script_that_runs_it_refuses_unless_it_is_told(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    import check_multimem

    monkeypatch.delenv("CHUNKDSL_RUN_MULTICAST", raising=False)
    with pytest.raises(SystemExit, match="never on a shared host"):
        check_multimem.ask_for_consent()
    monkeypatch.setenv("CHUNKDSL_RUN_MULTICAST", "1")
    monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    with pytest.raises(SystemExit, match="switched off"):
        check_multimem.ask_for_consent()
