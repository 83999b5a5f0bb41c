"""A person's first ten minutes with the command line, as a transcript: each step reads what the one before printed."""

import re
from pathlib import Path

import pytest

from chunkdsl.cli import main


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(line, code=0):
        found = main(line.split())
        captured = capsys.readouterr()
        assert found == code, f"$ chunkdsl {line}\n{captured.out}{captured.err}"
        assert "Traceback" not in captured.out + captured.err
        return captured.out

    return run


def change(old, new):
    text = Path("mine.chunk").read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    Path("mine.chunk").write_text(text.replace(old, new), encoding="utf-8")


def test_new_check_break_read_mend_build_verify(shell):
    assert "gemm_ar" in shell("new")
    assert shell("new gemm_ar mine.chunk") == "mine.chunk\n"
    start = Path("mine.chunk").read_text(encoding="utf-8")
    assert shell("check mine.chunk") == ""

    # a slip of the keyboard, which has one mend
    change("tensor w : bf16", "tensor w = bf16")
    said = shell("check mine.chunk", 1)
    assert "error: CD107[wrong-separator] `=` where `:` is meant" in said and "= fix: write `:` (safe)" in said
    shell("check mine.chunk --diff", 1)
    assert shell("check mine.chunk --fix") == "" and Path("mine.chunk").read_text(encoding="utf-8") == start

    # a mistake about where values lie: the bias is added once per rank
    change("all_reduce(x @ w.T) + b     with", "all_reduce(x @ w.T + b)     with")
    said = shell("check mine.chunk", 1)
    assert "it would be added once per rank" in said and "help: `all_reduce(x @ w.T) + b`" in said
    code = said.split("error: ")[1][:5]
    assert "Fails:" in (told := shell(f"explain {code}")) and "Mended:" in told
    assert shell("check mine.chunk --fix", 1).count(code) == 1, "a guess is not made without being asked for"
    assert shell("check mine.chunk --unsafe-fixes") == ""
    shell("fmt mine.chunk")
    assert Path("mine.chunk").read_text(encoding="utf-8") == start

    # a key that is not one, and a value that does not go with another
    change("route = swizzle, via = ldst, place", "rout = swizzle, via = copy_engine, place")
    said = shell("check mine.chunk", 1)
    assert "`rout`" in said and "did you mean `route`" in said
    change("rout = swizzle, via", "route = swizzle, via")
    said = shell("check mine.chunk", 1)
    assert "CD601" in said
    assert shell(f"explain --search {said.split('CD601[')[1].split(']')[0].split('-')[0]}").count("CD601") == 1
    change("via = copy_engine, place", "via = ldst, place")
    assert shell("check mine.chunk --world 2,4") == "" and shell("fmt --check mine.chunk") == ""

    assert "256 rows" in shell("plan mine.chunk --world 2")
    assert shell("build mine.chunk") == "build/mine.py\n"
    assert "class Mine" in Path("build/mine.py").read_text(encoding="utf-8")
    table = shell("verify mine.chunk --world 2 --seeds 1 --no-compile")
    held, of = re.search(r"(\d+) of (\d+) checks hold", table).groups()
    assert held == of and int(of) >= 5 and "exact, bit by bit" in table


def test_five_mistakes_are_five_findings(shell):
    shell("new gemm_rs mine.chunk")
    change("mesh tp[8] over", "mesh tp[8] ovr")
    change("dim M = 1..16384", "dim M : 1..16384")
    change("tensor a   : bf16[M, D @ tp]", "tensor a   : bf16[M, D @ tp")
    change("dim H = 4096 ", "dim H = 2 ** 12 ")
    change("-> y {", "{")
    said = shell("check mine.chunk --output-format concise", 1).splitlines()
    assert [line.split("error: ")[1][:5] for line in said] == ["CD109", "CD107", "CD117", "CD105", "CD120"]
