"""Calls that a gate sends the unfused way, around a user's kernel: torch's operations on what it has written."""

from pathlib import Path

from chunkdsl.cli import main

ROOT = Path(__file__).parent.parent.parent


def test_a_call_below_the_gate_is_verified_with_what_the_kernel_wrote(monkeypatch, capsys):
    """One row, far below the gate of `up`: its result is copied into memory of its own before the call returns."""
    monkeypatch.chdir(ROOT)
    code = main(["verify", "specs/user_gemm.chunk", "--world", "2", "--seeds", "1", "--no-compile", "--dim", "M=1"])
    assert code == 0, capsys.readouterr().out


def test_a_kernel_that_takes_a_table_of_integers_is_planned(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "kernels"))
    from group_specs import SPECS

    text = SPECS["table"].replace('"tests/kernels', f'"{ROOT}/tests/kernels')
    path = tmp_path / "table.chunk"
    path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    code = main(["plan", str(path)])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "places" in text and "f_op" in said.out
