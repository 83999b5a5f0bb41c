"""Products that leave multiprocessors idle are predicted as they were measured: clocks are higher there."""

import re
import sys
from pathlib import Path
from statistics import median

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import model_errors

from chunkdsl.cost import constants
from chunkdsl.cost.constants import gpu_names, machine
from chunkdsl.cost.work import program_us

ROWS = model_errors.recorded()["few"]["rows"]


def errors(what):
    found = [r for r in model_errors.few_rows(ROWS) if what in r.what]
    assert len(found) == len(ROWS) and {r.fitted for r in found} == {what == "256"}
    return [r.error for r in found]


@pytest.mark.parametrize("what", ["256", "128", "Triton"])
def test_few_tiles_of_every_kernel_are_within_an_eighth(what):
    assert max(map(abs, errors(what))) < 0.125 and median(map(abs, errors(what))) < 0.06


@pytest.mark.parametrize("clock", [lambda gpu, busy: 1.0, lambda gpu, busy: (1 / busy) ** 0.5])
def test_other_clocks_are_seen(monkeypatch, clock):
    """One for all, and one that rises without an end."""
    monkeypatch.setattr(constants.Gpu, "clock", clock)
    assert max(map(abs, errors("256"))) > 0.25 and max(map(abs, errors("128"))) > 0.25


def test_few_multiprocessors_share_the_cache():
    on, flops, loads = machine("h200"), 1 << 30, 1 << 20
    assert program_us(0, loads, "bf16", on, busy=0.25) == program_us(0, loads, "bf16", on) / 4
    assert program_us(flops, 0, "bf16", on, busy=0.25) == program_us(flops, 0, "bf16", on) / on.gpu.boost


def test_the_clock_rises_to_its_end_and_is_that_of_the_fits_under_load():
    gpu = machine("h200").gpu
    clocks = [gpu.clock(n / 132) for n in range(1, 133)]
    assert clocks == sorted(clocks, reverse=True) and clocks[0] == gpu.boost and clocks[128:] == [1.0] * 4
    assert 1.2 < gpu.clock(0.5) < gpu.boost
    assert all(machine(name).gpu.clock(0.1) == 1.0 for name in gpu_names() if name != "h200"), "nobody measured it"


def test_programs_that_carry_do_not_count_as_idle():
    """Behind the host link eight of them cost a product more than the wave that they make it longer."""
    rows = {r.case: r for r in model_errors.host_rows(model_errors.recorded())}
    eight, four = (rows[f"triton, own_sms({n}), tma, 8 chunks a shard"] for n in (8, 4))
    assert 1.06 < eight.predicted / four.predicted < eight.measured / four.measured


def test_calls_of_512_rows_are_on_the_side_of_the_library_on_which_they_were_measured():
    text = (Path(model_errors.__file__).parent / "RESULTS.md").read_text(encoding="utf-8")
    words = re.sub(r"\s+", " ", text.split("With what the table chooses", 1)[1].split("Eagerly", 1)[0])
    rows = [r for r in model_errors.rows_of_narrow() if r.what == "ratio"]
    assert len(rows) == 9 and all(f"{r.measured:.2f}" in words for r in rows)
    assert all(r.predicted > 1 for r in rows) and max(abs(r.error) for r in rows) < 0.15
