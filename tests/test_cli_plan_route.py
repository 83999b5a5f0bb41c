"""`chunkdsl plan --route`: a plan of a spec is written as JSON that `use plan` takes up again."""

import json

import pytest

from chunkdsl.cli import main
from chunkdsl.pipeline import check_source, route
from chunkdsl.plan.importers import load_route
from chunkdsl.source import Source

SPEC = """mesh tp[4] over nvlink
plan rounds(t) : all_gather over tp {
    for i in range(tp - 1) {
        let s = (rank - i) mod tp
        send t[s] to (rank + 1) mod tp
    }
}
plan pairs(t) : reduce_scatter over tp {
    for i in range(1, tp) {
        lane i { send t[(rank + i) mod tp] part i mod 2 of 2 to (rank + i) mod tp adding }
        lane i { send t[(rank + i) mod tp] part (i + 1) mod 2 of 2 to (rank + i) mod tp adding }
    }
}
plan doubling(t) : all_gather over tp {
    for k in range(log2(tp)) { for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) } }
}
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    (tmp_path / "made.chunk").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(capsys, *args):
    assert main(["plan", "made.chunk", *args]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


@pytest.mark.parametrize("name, contract, world", [
    ("rounds", "all_gather", 4), ("rounds", "all_gather", 3), ("pairs", "reduce_scatter", 4),
    ("doubling", "all_gather", 8),
])  # fmt: skip
def test_what_is_written_is_taken_up_again(place, capsys, name, contract, world):
    text = written(capsys, "--route", name, "--world", str(world))
    (place / "again.json").write_text(text)
    use = f'mesh tp[{world}]\nuse plan "again.json" as r : {contract} over tp\n'
    checked = check_source(Source("again.chunk", use))
    assert checked.report.diagnostics == ()
    first = check_source(Source("made.chunk", SPEC)).program.plans[name].trace(world).route
    assert load_route(text) == first
    flows = checked.program.plans["r"].trace(world).flows
    assert [[(f.holder, f.reader, f.source, f.part) for f in mine] for mine in flows] == [
        [(f.holder, f.reader, f.source, f.part) for f in mine]
        for mine in check_source(Source("made.chunk", SPEC)).program.plans[name].trace(world).flows
    ]
    (place / "again.chunk").write_text(use)
    again, json_again = route("again.chunk", "r")
    assert not again.failed and json.loads(json_again)["axes"] == [world]


def test_the_mesh_says_how_many_ranks(capsys):
    assert len(json.loads(written(capsys, "--route", "rounds"))["steps"]) == 4


@pytest.mark.parametrize("args, code, status", [
    (["--route", "round"], "CD019", 2),
    (["--route", "doubling", "--world", "6"], "CD340", 1),
])  # fmt: skip
def test_what_cannot_be_written(capsys, args, code, status):
    assert main(["plan", "made.chunk", *args]) == status
    assert f"error: {code}[" in capsys.readouterr().out


def test_findings_as_json(capsys):
    assert main(["plan", "made.chunk", "--route", "round", "--json"]) == 2
    assert "CD019" in json.dumps(json.loads(capsys.readouterr().out))


def test_a_spec_with_errors_or_none_at_all(place, capsys):
    (place / "bad.chunk").write_text("mesh tp[4]\nplan p(t) : nothing over tp { }\n")
    assert main(["plan", "bad.chunk", "--route", "p"]) == 1 and "CD270" in capsys.readouterr().out
    assert main(["plan", "lost.chunk", "--route", "p"]) == 2 and "CD002" in capsys.readouterr().out
    assert main(["plan", ".", "--route", "p"]) == 2 and "it is a folder" in capsys.readouterr().out
