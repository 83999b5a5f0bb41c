"""What follows a sum of the switch in its kernel, residual and norm: the source compiles and passes the lint, which
sees when it should not; arguments are in order; `exact` and the fallback have the values that they must have."""

import pytest
import torch
from emitted import built
from test_multimem import needs_nvrtc

from chunkdsl.aot.lint_multimem import lint_switch
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.plan.footprint import memory
from chunkdsl.render.switched import MULTIMEM, MULTIMEM_STORE
from chunkdsl.runtime.cuda import CudaKernel
from chunkdsl.sim.world import World

HEAD = "mesh tp[2] over nvlink\ndim T = 0..9\ntensor p : {t}[T, {h}] sum tp\n"
HEAD += "tensor r : {t}[T, {h}]\ntensor g : {t}[{h}]\n"
SWITCH = "with {{ via = multimem, algorithm = {a} }}"
NORM = HEAD + "op f(p, g) -> y {{ y = rms_norm(all_reduce(p), g) " + SWITCH + " }}\n"
RESIDUAL = HEAD + "op f(p, r inout) -> y {{\n    r = r + all_reduce(p) " + SWITCH
RESIDUAL += "\n    y = silu(r) / 2 - tanh(-r) + relu(gelu(r))\n}}\n"
BOTH = HEAD + "op f(p, r inout, g) -> y, z {{\n    r = r + all_reduce(p) " + SWITCH
BOTH += "\n    y = rms_norm(r, g)\n    z = rms_norm(y * 2 - r, g)\n}}\n"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def operation(text, dtype, algorithm, columns=96):
    _, schedule, module, title = built(text.format(t=dtype, a=algorithm, h=columns))
    return schedule, module, title, getattr(module, title).OPS["f"]


def compiled(f, source=None):
    return CudaKernel(f.KERNEL, source or f.SOURCE).compile("sm_90a")[0]


SOURCES = [(BOTH, "bf16", "one_shot", 96), (RESIDUAL, "f16", "two_shot", 96), (NORM, "f32", "two_shot", 16384)]


@needs_nvrtc
@pytest.mark.parametrize("text, dtype, algorithm, columns", SOURCES, ids=["both", "residual", "norm"])
def test_the_source_compiles_passes_the_lint_and_keeps_a_row_in_registers(text, dtype, algorithm, columns):
    ptx = compiled(operation(text, dtype, algorithm, columns)[3])
    two = algorithm == "two_shot"
    # Of a row held in registers each thread's vectors are loads of their own; none is in memory of the thread.
    assert lint_switch(ptx) == [] and ".local" not in ptx
    assert ptx.count(MULTIMEM[dtype] + " ") == 1 and ptx.count(MULTIMEM_STORE[dtype] + " ") == two


@pytest.fixture(scope="module")
def both_in_two_rounds():
    return operation(BOTH, "bf16", "two_shot")[3]


MUTANTS = {
    "weak, cached": ('"ld.relaxed.sys.global.v4.u32 { %0, %1, %2, %3 }, [%4];"\n                 : "=r"(v.',
                     '"ld.global.nc.v4.u32 { %0, %1, %2, %3 }, [%4];"\n                 : "=r"(v.'),
    "no fence.proxy.alias since the store": ("        other_name();\n        there =", "        there ="),
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("finding", MUTANTS)
def test_the_lint_sees_what_is_wrong_in_the_source(both_in_two_rounds, finding):
    f, (old, new) = both_in_two_rounds, MUTANTS[finding]
    assert f.SOURCE.count(old) == 1
    assert any(finding in line for line in lint_switch(compiled(f, f.SOURCE.replace(old, new))))


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot"])
def test_a_program_has_whole_rows_and_its_arguments_are_in_order(monkeypatch, algorithm):
    _, module, title, _ = operation(BOTH, "bf16", algorithm)
    seen, machine = [], RecordingMachine(rank=1)
    monkeypatch.setattr(RecordingMachine, "launch_cuda", lambda self, *launch: seen.append(launch))
    f = getattr(module, title)(machine=machine).f
    seen.clear()
    p, r, g = (torch.zeros(n, 96, dtype=torch.bfloat16) for n in (7, 7, 1))
    y, z = f(p, r, g[0])
    ((_, programs, threads, args),) = seen
    args = [a.value for a in args]
    assert (programs, threads) == (7, 128) and len(args) == f.SOURCE.split('extern "C"')[1].split("{")[0].count(",") + 1
    assert args[:6] == [t.data_ptr() for t in (p, r, g, y, z, r)]
    # world, rank, vectors, vectors of a row, of a buffer, flags of a rank, site, active
    assert args[-8:] == [2, 1, 7 * 12, 12, 9 * 12, 9, 0, 1]


@pytest.mark.parametrize("world", [2, 5])
def test_the_plan_counts_the_memory_that_a_rank_allocates(world):
    schedule, _, _, f = operation(BOTH, "bf16", "two_shot")
    made = {m.name: m.rows * m.cols for m in memory(schedule, schedule.ops[0], world, {})}
    for name, _, (rows, columns), _ in (m for m in f.memory({"T": 9}, world) if len(m[2]) == 2):
        assert made[name] == rows * columns, name


@pytest.mark.parametrize("dtype, algorithm", [("bf16", "one_shot"), ("f32", "two_shot")])
def test_exact_and_the_fallback_have_the_values_of_the_statements(dtype, algorithm):
    _, module, title, _ = operation(BOTH, dtype, algorithm)
    to, generator = DTYPES[dtype], torch.Generator().manual_seed(5)
    p, (r, g) = torch.randn(2, 5, 96, generator=generator).to(to), torch.randn(2, 5, 96, generator=generator).to(to)

    def body(machine):
        machine.multicast, machine.load, machine.launch_cuda = lambda m: 16, lambda k: None, lambda *launch: None
        f = getattr(module, title)(machine=machine).f
        held = [r.clone(), r.clone()]
        made = [way(p[machine.rank], res, g[0]) for way, res in zip((f.exact, f.fallback), held, strict=True)]
        return [(res, *values) for res, values in zip(held, made, strict=True)]

    def norm(x):
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g[0].float()).to(to)

    total = (r.float() + p.float().sum(0).to(to).float()).to(to)
    want = [total, norm(total), norm((norm(total).float() * 2 - total.float()).to(to))]
    for values in (way for rank in World(2, seed=0).run(body) for way in rank):
        for value, wanted in zip(values, want, strict=True):
            torch.testing.assert_close(value, wanted, rtol=2 * torch.finfo(to).eps, atol=2 * torch.finfo(to).eps)
