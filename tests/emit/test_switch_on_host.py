"""The switch's kernels carried out on the CPU (host_switch.py), on three ranks: what they leave is what the statements
say, with equal bits on all ranks, in calls that shrink and grow."""

import ctypes
import shutil

import pytest
import torch
from emitted import built
from host_switch import compiled
from test_multimem_fused import BOTH, RESIDUAL

WORLD, SIZES, COLUMNS = 3, (2, 1, 2), 1040  # 130 vectors: more than a block has threads, no multiple of the ranks
SUM = BOTH.split("op f")[0] + "op f(p) -> y {{ y = all_reduce(p) with {{ via = multimem, algorithm = {a} }} }}\n"
CASES = {
    "both_one": (BOTH, "one_shot"), "both_two": (BOTH, "two_shot"), "residual_one": (RESIDUAL, "one_shot"),
    "residual_two": (RESIDUAL, "two_shot"), "sum_one": (SUM, "one_shot"), "sum_two": (SUM, "two_shot"),
}  # fmt: skip
FAULTS = {
    "one_warp": ("both_one", "(int)blockDim.x / 32; ++warp", "1; ++warp"),
    "no_column": ("residual_two", "finish(take(words + 16 * (sums + at)), at", "finish(take(words + 16 * sums), at"),
}
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def operation(case):
    text, algorithm = CASES[case]
    _, schedule, module, title = built(text.format(t="bf16", a=algorithm, h=COLUMNS))
    return getattr(module, title).OPS["f"], schedule.ops[0].exchange


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    sources = {}
    for name, case, old, new in [*((c, c, "", "") for c in CASES), *((n, *f) for n, f in FAULTS.items())]:
        f, x = operation(case)
        assert not old or f.SOURCE.count(old) == 1
        source = f.SOURCE.replace(old, new) if old else f.SOURCE
        sources[name] = source, f.KERNEL, 1 + len(x.operands) + len(x.stores)
    return compiled(tmp_path_factory.mktemp("switch"), sources)


def addresses(tensors):
    return (ctypes.c_uint64 * len(tensors))(*(t.data_ptr() for t in tensors))


def largest_gap(library, name, case):
    """Of results from what they should be, in calls one after the other; infinite where two ranks' bits differ."""
    f, x = operation(case)
    generator, bf16, gap = torch.Generator().manual_seed(1), torch.bfloat16, 0.0
    sizes = {m: (shape, dtype) for m, _, shape, dtype in f.memory({"T": 9}, WORLD)}
    sizes |= {"state": ((16,), torch.int32), "record": ((16,), torch.int32)}
    held = {n: [torch.zeros(s, dtype=d) for _ in range(WORLD)] for n, (s, d) in sizes.items()}
    tables = [addresses(held[n]) for n in ("words2", "arrived", "state", "record", "epochs2")]
    for rows in SIZES:
        p, g = (torch.randn(n, rows, COLUMNS, generator=generator).to(bf16) for n in (WORLD, 1))
        r, g = torch.randn(rows, COLUMNS, generator=generator).to(bf16), g[0, 0]
        made = [{s.tensor: torch.zeros(rows, COLUMNS, dtype=bf16) for s in x.stores} for _ in range(WORLD)]
        for results in made:
            results |= {"r": r.clone()} if "r" in results else {}
        tensors = [[p[k], *({"r": made[k].get("r"), "g": g}[o.source] for o in x.operands), *made[k].values()]
                   for k in range(WORLD)]  # fmt: skip
        every = (ctypes.c_void_p * 5)(*map(ctypes.addressof, tables))
        numbers = rows * COLUMNS // 8, COLUMNS // 8, held["words2"][0].shape[1] // 4, held["arrived"][0].shape[1]
        getattr(library, f"run_{name}")(
            WORLD, 1, 32 * f.FORMS[0][4][0][1], addresses([t for rank in tensors for t in rank]), every, *numbers
        )
        assert not any(record.any() for record in held["record"])
        for tensor, wanted in expected(case, p, r, g).items():
            if any(m[tensor].view(torch.int16).ne(made[0][tensor].view(torch.int16)).any() for m in made):
                return float("inf")
            unlike = (made[0][tensor].float() - wanted.float()).abs() / wanted.float().abs().clamp_min(1)
            gap = max(gap, unlike.max().item())
    return gap


def expected(case, p, r, g):
    """Results by name, each statement rounded to bf16."""
    total = sum(p.float(), torch.zeros(())).bfloat16()
    if case.startswith("sum"):
        return {"y": total}
    r = (r.float() + total.float()).bfloat16()
    if case.startswith("residual"):
        wide, f = r.float(), torch.nn.functional
        return {"r": r, "y": (f.silu(wide) / 2 - torch.tanh(-wide) + torch.relu(f.gelu(wide))).bfloat16()}
    y = norm(r, g)
    return {"r": r, "y": y, "z": norm((y.float() * 2 - r.float()).bfloat16(), g)}


def norm(x, g):
    x = x.float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g.float()).bfloat16()


@pytest.mark.parametrize("case", CASES)
def test_results_are_what_the_statements_say(library, case):
    assert largest_gap(library, case, case) <= 2 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(library, fault):
    assert largest_gap(library, fault, FAULTS[fault][0]) > 2 * torch.finfo(torch.bfloat16).eps
