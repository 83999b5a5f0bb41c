"""A single program that is out of line, among many that were not traced one by one."""

import numpy as np
import pytest
from data_specs import programs_spec
from kernel_specs import ROOT, checked, gathered

from chunkdsl.kernels import answers, footprint
from chunkdsl.kernels.every_program import Check

PATH = "tests/kernels/kernel_zoo_programs.py"
LINES = (ROOT / PATH).read_text().splitlines()
REFUSED = {  # what is said, and the line that it points to
    "reads_another_row": ("program (157, 0, 0) loads row 3 of X; what others do would be rows 157 to 157", "tl.load"),
    "reads_outside": ("a load outside the declared shape of X [256 x 16], by program (157, 0, 0)", "tl.load"),
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
        return {odd: messages(programs_spec(PATH, REFUSED, odd)) for odd in (157, 10_000)}


def messages(text: str) -> dict[str, list[str]]:
    found = {name: [] for name in REFUSED}
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
    """The elements that a program touches, as (row, column)."""
    rows, columns, at, there = (
        np.broadcast_to(v, (max(len(v), program + 1), v.shape[1]))[program] if len(v) == 1 else v[program]
        for v in (lanes.rows, lanes.columns, lanes.row_mask, lanes.column_mask)
    )
    if lanes.paired:
        return set(zip(rows[at].tolist(), columns[at].tolist(), strict=True))
    return {(r, c) for r in rows[at].tolist() for c in columns[there].tolist()}


@pytest.mark.parametrize("name", ["matmul_persistent", "matmul_descriptor", "matmul_blocks", "gated", "softmax"])
def test_many_programs_at_once_touch_what_each_does_alone(name, monkeypatch):
    """Held against traces of single programs, element by element."""
    monkeypatch.chdir(ROOT)
    compared = []

    def compare(finder, found, small, traced):
        sizes = sorted(traced, key=lambda s: np.prod(finder.grid(s)))[1]
        check = Check(finder, found, sizes)
        batch = {}
        monkeypatch.setattr(check, "check", lambda access, numbers: [
            batch.setdefault((tuple(check.programs[n].tolist()), access.kind, access.argument, access.line),
                             set()).update(touched(access.lanes, i))
            for i, n in enumerate(numbers)
        ])  # fmt: skip
        monkeypatch.setattr(check, "check_stored", lambda: None)
        check.run()
        single = {}
        for t in finder.touches(sizes):
            rows, columns = t.rows.tolist(), t.columns.tolist()
            assert t.kind == "load" or len(t.elements) == len(rows) * len(columns)
            found = single.setdefault((t.program, t.kind, t.argument, t.line), set())
            found.update((r, c) for r in rows for c in columns)
        compared.append((single, {k: v for k, v in batch.items() if v}))

    monkeypatch.setattr(footprint, "check_every_program", compare)
    monkeypatch.setattr(answers, "_answers", {})
    checked(gathered(name))
    ((single, batch),) = compared
    assert single == batch and len(single) > 2
