"""A single program that is out of line, among many that were not traced one by one."""

import numpy as np
import pytest
from data_specs import programs_spec, sizes_spec
from kernel_specs import ROOT, checked, gathered

from chunkdsl.kernels import answers, footprint
from chunkdsl.kernels.every_program import OPERATIONS, Check
from chunkdsl.kernels.trace import PADDING

PATH = "tests/kernels/kernel_zoo_programs.py"
LINES = (ROOT / PATH).read_text().splitlines()
REFUSED = {  # what is said, and the line that it points to
    "reads_another_row": ("program (157, 0, 0) loads row 3 of X; what others do would be rows 157 to 157", "tl.load"),
    "reads_outside": ("a load outside the declared shape of X [160 x 16], by program (157, 0, 0)", "tl.load"),
    "reads_more": ("program (157, 0, 0) loads row 158 of X", "x += tl.load"),
    "stores_another_row": ("program (157, 0, 0) stores row 156 of Y", "tl.store"),
    "stores_half": ("does not store each element of row 157 of Y once", "tl.store"),
    "stores_one_column_twice": ("does not store each element of row 157 of Y once", "tl.store"),
    "reads_another_row_of_a_block": ("program (39, 0, 0) loads row 153 of X; what others do would be rows 156 to 159",
                                     "tl.load"),
    "reads_by_a_descriptor": ("program (157, 0, 0) loads row 3 of X", "x_desc.load"),
    "reads_by_a_block_pointer": ("program (157, 0, 0) loads row 156 of X", "tl.advance"),
    "reads_other_columns": ("program (0, 19, 0) loads column 288 of W; what others do would be columns 304 to 319",
                            "y = tl.load"),
    "reads_out_of_turn": ("program (157, 0, 0) loads row 0 of X; what others do would be rows 8 to 15",
                          "acc += tl.sum"),
    "goes_round_twice": ("program (157, 0, 0) loads row 158 of X", "tl.load"),
}  # fmt: skip


@pytest.fixture(scope="module")
def said():
    """What is said of each kernel with an odd program, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return {odd: messages(programs_spec(PATH, REFUSED, odd, 160)) for odd in (157, 10_000)}


def messages(text: str) -> dict[str, list[str]]:
    """What is said of each op."""
    found = {line.split("(")[0].split()[1]: [] for line in text.splitlines() if line.startswith("op ")}
    for d in checked(text).report.diagnostics:
        item = text[: d.span.start].rindex("\nop ") + 4
        found[text[item : text.index("(", item)]].append(f"{d.code}: {d.message}")
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_one_program_among_many_is_seen(said, name):
    what, access = REFUSED[name]
    first = next(i for i, text in enumerate(LINES) if text.startswith(f"def {name}("))
    line = next(i for i in range(first, len(LINES)) if access in LINES[i]) + 1
    (found,) = said[157][name]
    assert found.startswith(f"CD650: {PATH}:{line}: {what}")
    assert said[10_000][name] == []


def touched(lanes, program):
    """The elements that a program touches, in all rounds, as (row, column)."""
    fields = [v[min(program, len(v) - 1)] for v in (lanes.rows, lanes.columns, lanes.row_mask, lanes.column_mask)]
    rounds, found = max(len(v) for v in fields), set()
    for number in range(rounds):
        each = [v[min(number, len(v) - 1)] for v in fields]
        rows, at = np.broadcast_arrays(each[0], each[2])
        columns, there = np.broadcast_arrays(each[1], each[3])
        if lanes.paired:
            rows, columns, at = np.broadcast_arrays(rows, columns, at)
            found |= set(zip(rows[at].tolist(), columns[at].tolist(), strict=True))
        else:
            found |= {(r, c) for r in rows[at].tolist() for c in columns[there].tolist()}
    return found


@pytest.mark.parametrize("name", ["matmul_persistent", "matmul_descriptor", "matmul_blocks", "gated", "softmax"])
def test_many_programs_at_once_touch_what_each_does_alone(name, monkeypatch):
    """Held against traces of single programs, element by element."""
    monkeypatch.chdir(ROOT)
    compared = []

    def compare(finder, description, small):
        """One size that has several blocks, and at once with it those that differ from it in rows alone."""
        traced = finder.samples(small, finder.block, finder.column)
        first = sorted(traced, key=lambda s: np.prod(finder.grid(s)))[1]
        several = [first] + [{**first, finder.row: rows} for rows in (finder.block + 3, 1)]
        check = Check(finder, description, several)
        batch = {}
        monkeypatch.setattr(check, "check", lambda access, numbers, steps: [
            batch.setdefault((int(check.at[n]), tuple(check.programs[n].tolist()), access.kind, access.argument,
                              access.line), set()).update(touched(access.lanes, i))
            for i, n in enumerate(numbers)
        ])  # fmt: skip
        monkeypatch.setattr(check, "check_stored", lambda: None)
        check.run([OPERATIONS])
        single = {}
        for at, sizes in enumerate(several):
            for t in finder.touches(sizes):
                rows, columns = t.rows.tolist(), t.columns.tolist()
                assert t.kind == "load" or len(t.elements) == len(rows) * len(columns)
                found = single.setdefault((at, t.program, t.kind, t.argument, t.line), set())
                found.update((r, c) for r in rows for c in columns)
        compared.append((single, {k: v for k, v in batch.items() if v}))
        return description

    monkeypatch.setattr(footprint, "check_every_program", compare)
    monkeypatch.setattr(answers, "_answers", {})
    checked(gathered(name))
    ((single, batch),) = compared
    assert single == batch and {key[0] for key in single} == {0, 1, 2}


SIZES = {  # kernels of tests/kernels/kernel_zoo_sizes.py, and what is said: right at nearly all sizes, not at all
    "odd_residue": "(with m = 11)",
    "odd_size": "(with m = 133)",
    "odd_folded": "(with m = 264)",
    "odd_from_above": "(with m = 134)",
    "odd_grid": "(with m = 133)",
    "odd_quotient": "(with m = 132)",
    "odd_height": ", s = 24)",
    "odd_branch": "(with m = 133)",
    "odd_store": "does not store each element of row 0 of Y once (with m = 133)",
    "odd_outside": "a load outside the declared shape of X [133 x 32], by program (132, 0, 0)",
}


@pytest.fixture(scope="module")
def said_of_sizes():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return {odd: messages(sizes_spec(SIZES, f"ODD = {odd}, N = 32")) for odd in (133, 10_000)}


@pytest.mark.parametrize("name", SIZES)
def test_one_size_among_many_is_seen(said_of_sizes, name):
    (found,) = said_of_sizes[133][name]
    assert found.startswith("CD650: tests/kernels/kernel_zoo_sizes.py:") and SIZES[name] in found
    assert said_of_sizes[10_000][name] == []


def test_programs_without_columns_store_nothing(monkeypatch):
    """Their masked addresses reach into the next row, and beyond the last."""
    monkeypatch.chdir(ROOT)
    assert messages(sizes_spec(["wider_grid"], "N = 16", "m, 3")) == {"wider_grid": []}


def test_rows_lie_one_behind_the_other_at_the_largest_sizes_and_apart_at_others(monkeypatch):
    """So are tensors mostly, and neither may be what a kernel is right by."""
    monkeypatch.chdir(ROOT)
    gaps = {}

    def run(check, left):
        largest = check.several == [check.finder.q.sizes]
        gaps.setdefault(largest, set()).update(a.pitch - a.shape[1] for a in check.arguments.values())

    monkeypatch.setattr(Check, "run", run)
    monkeypatch.setattr(answers, "_answers", {})
    checked(gathered("matmul_blocks"))
    assert gaps == {True: {0}, False: {PADDING}}
