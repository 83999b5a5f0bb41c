"""Two rounds with `rms_norm`, whose rows stay with one program: the bits of `exact`, faults, visibility that is late, a
rank that dies or sleeps, and no spills on sixteen ranks."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from emitted import built, failures, run

from chunkdsl.aot.lints import lint
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.aot.targets import compile_kernel
from chunkdsl.sim.world import World
from chunkdsl.verify.compile import is_fused, skipped
from chunkdsl.verify.simulate import run_op

TEXT = """mesh tp[2] over nvlink
dim M = 0..{m}
dim H = {h}
tensor p : {t}[M, H] sum tp
tensor r : {t}[M, H]
tensor g : {t}[H]
op f(p, r inout, g) -> y, z {{
    r = r + all_reduce(p) with {{ algorithm = two_shot, {p} }}
    y = rms_norm(r, g)
    z = rms_norm(silu(y) * 2 - r, g)
}}
"""


@pytest.fixture(autouse=True)
def short_spans(monkeypatch):
    """Spans of at most 64 words: a row of 200 halves is two of them, with padding in the last piece."""
    monkeypatch.setattr("chunkdsl.lower.exchange.LEAST_SPAN", 64)
    monkeypatch.setattr("chunkdsl.lower.exchange.MOST_SPAN", 64)


def text(dtype="bf16", policy="validity = word", h=200, m=2):
    return TEXT.format(t=dtype, p=policy, h=h, m=m)


CASES = (("bf16", "validity = word", 3), ("f16", "validity = flag, buffers = 1", 2),
         ("f32", "validity = word, buffers = 1", 2))  # fmt: skip


@pytest.mark.parametrize("dtype, policy, world", CASES)
def test_the_bits_are_right_and_the_kernel_conforms(dtype, policy, world):
    rows = run(text(dtype, policy), world, (2, 0, 1), seed=world)
    assert failures(rows) == [] and {"y", "z", "r", "conformance"} <= {r.check.split(" ")[0] for r in rows}


MUTANTS = {
    "a piece goes to the wrong rank": ("to = address_at(peers, owner, rank, W)",
                                       "to = address_at(peers, (owner + 1) % W, rank, W)", "simulation"),
    "padding counts in the norm": ("_squares += tl.where(real, part, 0.0)", "_squares += part", "y"),
    "only the first span": ("for span in range(0, spans):\n                    inside",
                            "for span in range(0, 1):\n                    inside", "simulation"),
    "the second round reads the first": ("(slot * (2 * W) + W + owner)", "(slot * (2 * W) + owner)", "conformance"),
    "too few words are emptied": ("count // row * spans * piece)", "count // row * piece)", "conformance"),
    "an addend is its own instead of a peer's": ("mine = 1 - ours * (rank != source)",
                                                 "mine = 1 - ours * (rank < source)", "y"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_is_caught(name):
    old, new, by = MUTANTS[name]
    program, schedule, module, title = built(text())
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert old in source, "the fault has no place"
    path = Path(module.__file__).with_name(f"rounds_{list(MUTANTS).index(name)}.py")
    path.write_text(source.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    calls = [{"M": n} for n in ((2, 1, 1, 1) if "emptied" in name else (1, 2))]
    rows = run_op(made, title, schedule, schedule.ops[0], program.ops[0], 2, 1, calls, pointers=False)
    assert by in [r.check.split(" ")[0] for r in rows if not r.passed]


def simulate(host, policy, world=2, **options):
    _, _, module, title = built(text(policy=policy))
    return World(world, **options).run(lambda machine: host(getattr(module, title)(machine=machine).f, machine))


def inputs(rank, seed=0, rows=1):
    torch.manual_seed(10 * seed + rank)
    return [torch.randn(rows, 200).bfloat16(), torch.zeros(rows, 200).bfloat16(), torch.ones(200).bfloat16()]


@pytest.mark.parametrize("policy", ["validity = word", "validity = flag"])
def test_it_never_fails_when_stores_are_seen_late_and_out_of_order(policy):
    def host(f, machine):
        fused = [f(*inputs(machine.rank, i)) for i in range(2)]
        machine.synchronize()
        f.check()
        exact = [f.exact(*inputs(machine.rank, i)) for i in range(2)]
        machine.synchronize()
        return all(torch.equal(a, b) for y, z in zip(fused, exact, strict=True) for a, b in zip(y, z, strict=True))

    assert all(all(simulate(host, policy, seed=seed, delay=True)) for seed in range(2))


def test_a_rank_that_dies_is_named_and_the_call_has_no_result():
    def host(f, machine):
        f(*inputs(machine.rank))
        machine.synchronize()
        if machine.rank == 1:
            return ""
        f(*inputs(machine.rank))
        machine.synchronize()
        with pytest.raises(RuntimeError) as told:
            f.check()
        return str(told.value)

    said = simulate(host, "validity = word", seed=1, expire=True)[0]
    assert "small.chunk:8 f: wait for the words of rank 1, call 2" in said


def test_sixteen_ranks_do_not_spill_and_a_timeout_may_be_short(monkeypatch):
    monkeypatch.undo()
    _, _, module, title = built(text("f32", "validity = word", 4096, 64))
    machine = RecordingMachine(rank=0, world=16, target="sm_90")
    getattr(module, title)(machine=machine, timeout=1.0)  # ns that fit 32 bits, which another type would be made of
    (use,) = [u for u in machine.uses if is_fused(u)]
    assert [f.lint for f in lint(compile_kernel(use, "sm_90"), "sm_90", "", skipped(use))] == []
