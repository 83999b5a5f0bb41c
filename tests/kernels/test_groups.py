"""Grouped matrix products: which forms are fused, which are refused, and where."""

import pytest
from evidence_table import compiled, refusal
from group_specs import GROUPS, REFUSED, SPECS
from kernel_specs import ROOT, checked
from test_fused_kernels import failures

SAID = {
    "pointers": ("b = tl.load(b_ptr + ks", "a load at an address that depends on data: line 41 loads it from P"),
    "sizes": ("a = tl.load(a_ptr + (first", "whether `tl.load` takes place depends on data: line 55 loads it from T"),
}
UNFIT = {
    "rows of what is gathered": ("rows[:, None] * K + ks[None, :]", "(rows[:, None] % (M - group)) * K + ks[None, :]"),
    "columns of a rank's part": ("* N + cols[None, :], mask=cols", "* N + (cols[None, :] + group) % N, mask=cols"),
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", SPECS)
def test_a_grouped_product_is_fused(name, tmp_path):
    calls = (37, 1) if name == "loop" else (37,)  # of two shards: 74 rows, a whole group and a part of one
    assert failures(SPECS[name], tmp_path, 2, dims=calls) == []


@pytest.mark.parametrize("name", SAID)
def test_what_hides_its_rows_in_a_table_is_refused_at_its_line(name):
    code, what = SAID[name]
    line = next(i for i, text in enumerate((ROOT / GROUPS).read_text().splitlines(), 1) if code in text)
    found = refusal(REFUSED[name])
    assert found.startswith(f"CD650: {GROUPS}:{line}:") and what in found


@pytest.mark.parametrize("name", UNFIT)
def test_only_along_what_is_whole_may_a_table_pick(name, tmp_path):
    old, new = UNFIT[name]
    text = (ROOT / "tests/kernels/kernel_zoo_more.py").read_text()
    assert old in text
    kernel = ROOT / "tests/kernels/kernel_zoo_more.py"
    spec = SPECS["table"].replace("tests/kernels/kernel_zoo_more.py", str(tmp_path / "changed.py"))
    (tmp_path / "changed.py").write_text(kernel.read_text().replace(old, new))
    assert "address that depends on data" in refusal(spec)


def test_a_table_compiles():
    assert compiled(checked(SPECS["table"]), "sm_90") == []
