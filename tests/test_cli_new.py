"""`new`, completion in the shell, the hooks for pre-commit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chunkdsl import commands
from chunkdsl.cli import main, parser
from chunkdsl.starts import starts

ROOT = Path(__file__).parent.parent


def test_the_list_says_what_each_is(capsys):
    assert main(["new"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(starts())
    assert {"tp_mlp", "gemm_rs"} <= set(starts()) and all(len(line.split()) > 4 for line in lines)


@pytest.mark.parametrize("kind", starts())
def test_a_start_is_right_and_formatted(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", kind]) == 0
    assert capsys.readouterr().out == f"{kind}.chunk\n"
    assert main(["check", f"{kind}.chunk"]) == 0
    assert main(["fmt", "--check", f"{kind}.chunk"]) == 0


def test_a_beginning_that_fits_one_is_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "tp_mlp_", "mine.chunk"]) == 0
    assert Path("mine.chunk").read_text() == starts()["tp_mlp_swiglu"].text
    assert main(["new", "decode"]) == 0 and Path("decode_all_reduce.chunk").exists()
    capsys.readouterr()
    assert main(["new", "gemm"]) == 2
    fitting = ", ".join(name for name in starts() if name.startswith("gemm"))
    assert "CD032" in (out := capsys.readouterr().out) and f"one of {fitting}" in out
    assert main(["new", "tp_mlp", "a\0b"]) == main(["new", "tp_mlp", "gone/a.chunk"]) == 2


def test_a_file_is_never_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tp_mlp.chunk").write_text("mine")
    assert main(["new", "tp_mlp"]) == 2 and Path("tp_mlp.chunk").read_text() == "mine"
    assert "tp_mlp.chunk: error: CD033" in capsys.readouterr().out


def complete(line, tmp_path):
    """What a shell would offer at the end of a line."""
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    code = "import sys; sys.argv = ['chunkdsl']; from chunkdsl.cli import entry; entry()"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True)
    return {word.strip() for word in answer.read_text().split("\n")}


def test_the_shell_completes_commands_and_options(tmp_path):
    assert complete("chunkdsl ", tmp_path) >= set(commands.NAMES)
    assert complete("chunkdsl check --out", tmp_path) == {"--output-format"}
    assert complete("chunkdsl check a --output-format s", tmp_path) == {"sarif"}


def test_the_shell_completes_starts_and_rules(tmp_path):
    assert complete("chunkdsl new gemm_", tmp_path) == {name for name in starts() if name.startswith("gemm_")}
    assert complete("chunkdsl explain CD20", tmp_path) >= {"CD203", "CD206"}
    assert complete("chunkdsl explain contracted-s", tmp_path) == {"contracted-sizes-differ"}


def test_hooks_are_commands():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    entries = re.findall(r"entry: chunkdsl (.*)", text)
    assert len(entries) == text.count("- id:") == 2
    for line in entries:
        parser().parse_args([*line.split(), "a.chunk"])
    assert re.findall(r"files: (.*)", text) == [r"\.chunk$"] * 2
