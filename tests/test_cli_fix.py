"""`check --fix`, ignore comments, choices of codes, settings."""

import json
from pathlib import Path

import pytest

from chunkdsl import files, pipeline, settings
from chunkdsl.cli import main
from chunkdsl.diagnostics import Edit, Fix, Report
from chunkdsl.ignores import apply_ignores
from chunkdsl.mend import apply_fixes, edited, mend
from chunkdsl.source import Source, Span

HEAD = "mesh tp[4]\ndim M = 1..64\ntensor x : bf16[M @ tp, 32]\ntensor r : bf16[M, 32]\n"
WRONG = "op f(x, r) -> y { y = x + r }"  # CD211


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name, text):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode())
        return name

    return put


def run(capsys, *argv):
    code = main(["check", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ---- fixes


def test_safe_fixes_are_applied_until_none_is_left(write, capsys):
    write("a.chunk", "dim M : 1..1_024\n  dim N = 0x10\npolicy p { chunk = 4 MB }\n")
    code, out, err = run(capsys, "a.chunk", "--fix")
    assert Path("a.chunk").read_text() == "dim M = 1..1024\ndim N = 16\npolicy p { chunk = 4 MB }\n"
    assert code == 1 and out.count("error: CD") == 1 and "CD112" in out
    assert err == "fixed 4 findings in 1 spec\nchecked 1 spec\n"
    code, out, err = run(capsys, "a.chunk", "--unsafe-fixes")
    assert (code, out) == (0, "") and "4 MiB" in Path("a.chunk").read_text()


def test_diff_writes_nothing_and_fails_if_it_would(write, capsys):
    write("a.chunk", "dim M : 4\n")
    code, out, err = run(capsys, "a.chunk", "--diff")
    assert code == 1 and out.endswith("-dim M : 4\n+dim M = 4\n") and "would fix 1 finding in 1 spec" in err
    assert Path("a.chunk").read_text() == "dim M : 4\n"
    assert run(capsys, write("b.chunk", "dim M = 4\n"), "--diff")[:2] == (0, "")


def test_a_spec_that_cannot_be_written_keeps_its_findings(write, capsys, monkeypatch):
    monkeypatch.setattr("chunkdsl.replace.replace_file", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    code, out, _ = run(capsys, write("a.chunk", "dim M : 4\n"), "--fix")
    assert code == 2 and "CD020" in out and "CD107" in out


def test_edits_that_touch_wait_for_the_next_round():
    text, report = "abc", Report(Source("x", "abc"))
    make = pipeline.check_source(Source("x", "dim M : 4")).report.diagnostics[0]
    for start, end in ((0, 1), (1, 2), (2, 3)):
        fix = Fix("t", (Edit(Span(start, end), text[start].upper()),), safe=True)
        report.add(type(make)(make.code, make.name, make.severity, f"{start}", Span(start, end), fixes=(fix,)))
    assert apply_fixes(text, report.diagnostics, False) == ("AbC", 2)
    assert edited("abc", [Edit(Span(3, 3), "d"), Edit(Span(0, 0), "_")]) == "_abcd"


def test_a_fix_that_brings_its_own_mistake_back_ends():
    first = pipeline.check_source(Source("x", "dim M : 4")).report
    rounds = []

    def check(source):
        rounds.append(source.text)
        return Report(source) if len(rounds) > 90 else pipeline.check_source(Source("x", "dim M : 4")).report

    assert mend(first, check)[1] == 0 and len(rounds) == 1


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "cases").glob("*.chunk")), ids=lambda p: p.name)
def test_safe_fixes_of_the_cases_bring_no_new_syntax_errors(path):
    for case in path.read_text().split("\n# ---"):
        report = pipeline.check_source(Source("x", case)).report
        after, count = mend(report, lambda source: pipeline.check_source(source).report)
        assert len(after.diagnostics) <= len(report.diagnostics) or count == 0 or not after.failed


# ---- ignore comments


def codes(text):
    report = pipeline.check_one(Report(Source("x", text)))
    return [(d.code, report.source.line_of(d.span.start)) for d in report.diagnostics]


def test_a_finding_is_silenced_on_its_line_or_from_the_line_above():
    assert codes(HEAD + WRONG + "\n") == [("CD211", 5)]
    assert codes(f"{HEAD}{WRONG}  # why # chunk: ignore[CD211]\n") == []
    assert codes(f"{HEAD}# chunk: ignore[CD211]\n# why\n\n{WRONG}\n") == []


@pytest.mark.parametrize("comment", [
    "# chunk:ignore[CD211]", "#Chunk : Ignore [cd211]", "# chunk: ignore[sums-not-reduced]",
])  # fmt: skip
def test_an_ignore_comment_is_read_however_it_is_spaced_and_named(comment):
    name = pipeline.check_source(Source("x", f"{HEAD}{WRONG}\n")).report.diagnostics[0].name
    assert codes(f"{HEAD}{WRONG}  {comment.replace('sums-not-reduced', name)}\n") == []


def test_what_silences_nothing_is_reported_and_removed():
    assert codes("dim M = 4 # chunk: ignore[CD211]\n") == [("CD030", 1)]
    assert codes(f"{HEAD}{WRONG}  # chunk: ignore[CD203, CD211]\n") == [("CD030", 5)]
    assert codes("dim M = 4 # chunk: ignore\n") == codes("dim M = 4 # chunk: ignore[all]\n") == [("CD030", 1)]
    for text, mended in (
        ("dim M = 4 # chunk: ignore[CD211]\n", "dim M = 4\n"),
        ("# chunk: ignore[CD211]\ndim M = 4\n", "dim M = 4\n"),
        ("dim M = 4 # why # chunk: ignore[CD211]\n", "dim M = 4 # why\n"),
        (f"{HEAD}{WRONG}  # chunk: ignore[CD203, CD211]", f"{HEAD}{WRONG}  # chunk: ignore[CD211]"),
        (f"{HEAD}{WRONG}  # chunk: ignore[CD211 , CD203]", f"{HEAD}{WRONG}  # chunk: ignore[CD211]"),
    ):
        report = pipeline.check_one(Report(Source("x", text)))
        assert mend(report, lambda source: pipeline.check_one(Report(source)))[0].source.text == mended


def test_nothing_is_called_unused_before_its_stage_ran():
    assert codes(f"dim = 4\n{HEAD}{WRONG}  # chunk: ignore[CD211]\n") == [("CD101", 1)]
    assert codes("dim M = 4 # chunk: ignore[CD303]\n") == []  # no proof ran
    # What a wrong declaration hides: mended, the tensor may give the finding that is ignored.
    assert codes(f"{HEAD}tensor v : bf16[M, M]\n{WRONG}  # chunk: ignore[CD203, CD211]\n") == [("CD227", 5)]


def test_an_ignore_comment_in_a_string_is_text():
    report = Report(Source("x", 'use plan "# chunk: ignore[CD203]" as r : all_gather over tp\n'))
    apply_ignores(report)
    assert report.diagnostics == ()


def test_an_ignored_error_is_still_one_to_build(write, capsys):
    write("a.chunk", f"{HEAD}{WRONG}  # chunk: ignore[CD211]\n")
    assert run(capsys, "a.chunk")[:2] == (0, "")
    assert main(["build", "a.chunk"]) == 1 and "CD211" in capsys.readouterr().out


# ---- which findings

TWO = "dim M = 4)\npolicy p { chunk = 4 MB }\n"  # CD106, CD112


def found(out):
    return [f["code"] for f in json.loads(out)]


@pytest.mark.parametrize("argv, wanted", [
    ([], ["CD106", "CD112"]), (["--select", "CD11"], ["CD112"]), (["--ignore", "cd112"], ["CD106"]),
    (["--select", "CD112,CD3", "--ignore", "CD1"], ["CD112"]), (["--ignore", "CD"], []),
    (["--select", "CD1", "--ignore", "CD106", "--ignore", "CD112"], []),
])  # fmt: skip
def test_codes_are_chosen_on_the_command_line(argv, wanted, write, capsys):
    code, out, _ = run(capsys, write("a.chunk", TWO), "--output-format", "json", *argv)
    assert found(out) == wanted and code == bool(wanted)


@pytest.mark.parametrize("argv, said", [
    (["--select", "CD999"], "there is no rule CD999"), (["--ignore", "CD1,cd201,CD192"], "did you mean CD102 or CD112"),
])  # fmt: skip
def test_a_code_that_no_rule_has_is_a_usage_error(argv, said, write, capsys):
    code, _, err = run(capsys, write("a.chunk", "dim M = 4)\n"), *argv)
    assert code == 2 and said in err


def test_what_is_not_selected_is_not_mended(write, capsys):
    run(capsys, write("a.chunk", "dim M : 0x4\n"), "--fix", "--select", "CD113")
    assert Path("a.chunk").read_text() == "dim M : 0x4\n"


def test_that_something_could_not_run_is_always_said(write, capsys):
    write("a.chunk", TWO)
    assert run(capsys, "gone.chunk", "--ignore", "CD0")[0] == 2
    of_no_use = write("b.chunk", "dim M = 4  # chunk: ignore[CD211]\n")
    assert "CD030" in run(capsys, of_no_use)[1] and "CD030" not in run(capsys, of_no_use, "--ignore", "CD030")[1]


def test_settings_are_read_from_the_folder_or_one_above(write, capsys, monkeypatch):
    write("pyproject.toml", '[tool.chunkdsl]\nignore = ["CD106"]\npaths = ["specs"]\n')
    write("specs/a.chunk", TWO)
    out = run(capsys, "--output-format", "json")[1]
    assert found(out) == ["CD112"] and json.loads(out)[0]["path"] == "specs/a.chunk"
    write("specs/deep/pyproject.toml", "[project]\nname = 'chunkdsl'\n")
    monkeypatch.chdir("specs/deep")
    out = run(capsys, "--output-format", "json")[1]
    assert found(out) == ["CD112"] and json.loads(out)[0]["path"].endswith("../specs/a.chunk")
    assert main(["fmt", "--check"]) == 1


def test_only_a_file_that_may_have_the_table_is_parsed(write, monkeypatch):
    parsed = []
    monkeypatch.setattr(settings, "_parse", lambda path, data: parsed.append(path))
    write("pyproject.toml", "[project]\nname = 'chunkdsl'\n[tool.ruff]\n")
    settings.read_settings()
    assert "pyproject.toml" not in parsed
    for text in ("[tool . chunkdsl]", "[tool]\nchunkdsl = {}", "tool.chunkdsl.select = []", '[tool."chunkdsl"]'):
        parsed.clear()
        write("pyproject.toml", text)
        settings.read_settings()
        assert parsed[0] == "pyproject.toml", text


def test_without_paths_anywhere_it_is_a_usage_error(write, capsys):
    write("pyproject.toml", "[tool.chunkdsl]\n")
    code, out, err = run(capsys)
    assert (code, out) == (2, "") and "usage: chunkdsl check" in err


@pytest.mark.parametrize("text, said", [
    ('selct = ["CD2"]', "did you mean `select`?"), ('select = "CD2"', "list of strings"),
    ("ignore = ['X1']", "not 'X1'"), ("ignore = ['CD1', 'CD999']", "there is no rule CD999"), ("= 2", "not TOML"),
])  # fmt: skip
def test_a_mistake_in_the_settings_is_a_finding_of_that_file(text, said, write, capsys):
    write("pyproject.toml", f"[tool.chunkdsl]\n{text}\n")
    code, out, _ = run(capsys, write("a.chunk", "dim M = 4\n"))
    assert code == 2 and "pyproject.toml" in out and "CD031[bad-setting]" in out and said in out


def test_a_settings_file_that_is_a_folder_is_none(write, capsys):
    Path("pyproject.toml").mkdir()
    assert run(capsys, write("a.chunk", "dim M = 4\n"))[0] == 0


def test_rewriting_needs_a_file(tmp_path):
    report = Report(Source(str(tmp_path / "gone.chunk"), ""))
    assert not files.rewrite(report, "x") and report.diagnostics[0].code == "CD020"
