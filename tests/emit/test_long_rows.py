"""Small all-reduces with rows longer than a block: the bits of `exact`, faults, and no spills when compiled."""

import importlib.util
import sys
from pathlib import Path

import pytest
from emitted import built

from chunkdsl.aot.lints import lint
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.aot.targets import compile_kernel
from chunkdsl.verify.compile import is_fused, skipped
from chunkdsl.verify.simulate import run_op

TEXT = """mesh tp[2] over nvlink
dim T = 0..5
dim H = {h}
tensor p : {t}[T, H] sum tp
tensor r : {t}[T, H]
tensor g : {t}[H]
op f(p, r inout, g) -> y, z {{
    r = r + all_reduce(p) with {{ {p} }}
    y = rms_norm(r, g)
    z = rms_norm(silu(y) * 2 - r, g)
}}
"""
CASES = (
    ("bf16", "validity = word"), ("f32", "validity = word, buffers = 1"), ("f16", "validity = flag, buffers = 1"),
    ("bf16", "validity = speculative, assume = run_to_completion"),
)  # fmt: skip


def small(case, monkeypatch):
    """The module of a spec with blocks of 64 words: a row has one and a half, of f32 three."""
    monkeypatch.setattr("chunkdsl.lower.exchange.MOST_WORDS", 64)
    return built(TEXT.format(h=192, t=case[0], p=case[1]))


def simulated(module, parts):
    """Checks that fail, of calls which shrink and grow, one without rows; a program has several rows."""
    program, schedule, _, title = parts
    calls = [{"T": n} for n in (1, 0, 4)]
    rows = run_op(module, title, schedule, schedule.ops[0], program.ops[0], 2, 1, calls, pointers=False)
    return [r.check.split(" ")[0] for r in rows if not r.passed]


@pytest.mark.parametrize("case", CASES, ids=[" ".join(c) for c in CASES])
def test_rows_of_several_blocks_give_the_right_bits_and_conform(case, monkeypatch):
    parts = small(case, monkeypatch)
    assert parts[1].ops[0].exchange.long_rows and simulated(parts[2], parts) == []


MUTANTS = {
    "only the first block is sent": ("for first in range(0, row, BLOCK):", "for first in range(0, BLOCK, BLOCK):",
                                     "simulation"),
    "only the last block counts": ("_squares += tl.where", "_squares = tl.where", "y"),
    "sums wait in one place": ("tl.program_id(0) * 2 + 1, row, column", "tl.program_id(0) * 2 + 0, row, column", "y"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_is_caught(name, monkeypatch):
    old, new, by = MUTANTS[name]
    parts = small(CASES[0], monkeypatch)
    text = Path(parts[2].__file__).read_text(encoding="utf-8")
    assert old in text, "the fault has no place"
    path = Path(parts[2].__file__).with_name(f"long_{list(MUTANTS).index(name)}.py")
    path.write_text(text.replace(old, new, 1 if by == "simulation" else -1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert by in simulated(made, parts)


def spilled(h, policy, world):
    """What the lints find in the fused kernel, compiled for sm_90."""
    _, _, module, title = built(TEXT.format(h=h, t="bf16", p=policy))
    machine = RecordingMachine(rank=0, world=world, target="sm_90")
    getattr(module, title)(machine=machine)
    (use,) = [u for u in machine.uses if is_fused(u)]
    return [f.lint for f in lint(compile_kernel(use, "sm_90"), "sm_90", "", skipped(use))]


def test_long_rows_do_not_spill_and_in_one_block_they_would(monkeypatch):
    """16,384 elements, the most that the documentation promises: 32 words for a thread in one block."""
    assert spilled(16384, "validity = word", 2) == []
    monkeypatch.setattr("chunkdsl.lower.exchange.MOST_WORDS", 8192)
    assert spilled(16384, "validity = word ", 2) == ["spills"]


def test_a_row_alone_on_a_multiprocessor_may_have_its_registers(monkeypatch):
    """Left to itself the compiler keeps to 64 registers and spills, so that two programs would fit."""
    assert spilled(4096, "validity = word, buffers = 1", 8) == []
    monkeypatch.setattr("chunkdsl.lower.exchange.REGISTERS", 0)
    assert spilled(4096, "validity = word, buffers = 1 ", 8) == ["spills"]


@pytest.mark.parametrize("policy", ["algorithm = two_shot, validity = word", "validity = word"])
def test_large_payloads_of_sixteen_ranks_do_not_spill(policy):
    """Unrolled, the places of their words took them beyond the registers; in one round, blocks of 1,024 threads did."""
    text = TEXT.replace("0..5", "1..256").split("tensor g")[0] + "op f(p) -> y {{ y = all_reduce(p) with {{ {p} }} }}\n"
    _, _, module, title = built(text.format(t="bf16", h=16384, p=policy))
    machine = RecordingMachine(rank=0, world=16, target="sm_90")
    getattr(module, title)(machine=machine)
    largest = [u for u in machine.uses if is_fused(u)][-1]
    assert not lint(compile_kernel(largest, "sm_90"), "sm_90", "", skipped(largest))
