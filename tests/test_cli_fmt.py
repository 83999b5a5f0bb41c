import io
import os
import sys

import pytest

from chunkdsl import files
from chunkdsl.cli import main
from chunkdsl.syntax import format as formatter

UNTIDY, TIDY = "dim M=4\n", "dim M = 4\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name, text):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return put


def run(capsys, *argv):
    code = main(["fmt", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_specs_are_formatted_in_place_and_then_left_alone(write, capsys, tmp_path):
    write("a.chunk", UNTIDY)
    write("b.chunk", TIDY)
    before = os.stat("b.chunk")
    assert run(capsys, ".") == (0, "", "1 of 2 specs was reformatted\n")
    assert (tmp_path / "a.chunk").read_text() == TIDY and os.stat("b.chunk").st_ino == before.st_ino
    assert run(capsys, ".") == (0, "", "0 of 2 specs were reformatted\n")


def test_check_names_what_is_not_formatted_and_writes_nothing(write, capsys, tmp_path):
    write("a.chunk", UNTIDY)
    assert run(capsys, "a.chunk", "--check") == (
        1, "a.chunk is not formatted\n", "1 of 1 spec would be reformatted\n")
    assert (tmp_path / "a.chunk").read_text() == UNTIDY
    assert run(capsys, write("b.chunk", TIDY), "--check")[0] == 0


def test_diff_shows_the_change_and_writes_nothing(write, capsys, tmp_path):
    write("a.chunk", "# same\ndim M=4")
    code, out, _ = run(capsys, "a.chunk", "--diff")
    assert (code, out) == (1, "--- a.chunk\n+++ a.chunk\n@@ -1,2 +1,2 @@\n # same\n-dim M=4\n"
                              "\\ No newline at end of file\n+dim M = 4\n")
    assert (tmp_path / "a.chunk").read_text() == "# same\ndim M=4"


def test_standard_input_goes_to_standard_output(capsys, monkeypatch):
    for text, code, wanted in ((UNTIDY, 0, TIDY), (TIDY, 0, TIDY), ("dim M = =\n", 1, "")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        found, out, err = run(capsys, "-")
        assert (found, out) == (code, wanted)
        assert ("-:1:9: error: CD101" in err) == bool(code)


def test_a_spec_that_does_not_parse_is_left_and_reported(write, capsys, tmp_path):
    write("a.chunk", "dim  M = =\n")
    write("b.chunk", UNTIDY)
    code, out, _ = run(capsys, "a.chunk", "b.chunk", "gone.chunk")
    assert code == 2 and "a.chunk:1:10: error: CD101" in out and "CD002" in out
    assert (tmp_path / "a.chunk").read_text() == "dim  M = =\n" and (tmp_path / "b.chunk").read_text() == TIDY


def test_a_byte_order_mark_and_line_ends_stay(write, capsys, tmp_path):
    write("a.chunk", b"\xef\xbb\xbfdim M=4\r\n\r\n\r\n# x")
    assert run(capsys, "a.chunk")[0] == 0
    assert (tmp_path / "a.chunk").read_bytes() == b"\xef\xbb\xbfdim M = 4\r\n\r\n# x\r\n"


def test_a_link_stays_a_link_and_permissions_stay(write, capsys, tmp_path):
    os.chmod(write("a.chunk", UNTIDY), 0o640)
    os.symlink("a.chunk", "link.chunk")
    assert run(capsys, "link.chunk")[0] == 0
    assert os.path.islink("link.chunk") and (tmp_path / "a.chunk").read_text() == TIDY
    assert os.stat("a.chunk").st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_written_is_a_finding(write, capsys, monkeypatch):
    def refuse(path, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("chunkdsl.replace.replace_file", refuse)
    code, out, _ = run(capsys, write("a.chunk", UNTIDY))
    assert code == 2 and "a.chunk: error: CD020[unwritable-spec] cannot write this file: Permission denied" in out


def test_a_failure_of_the_formatter_leaves_the_file(write, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(formatter, "render", lambda rows: "")
    code, out, _ = run(capsys, write("a.chunk", UNTIDY))
    assert code == 2 and "CD001" in out and (tmp_path / "a.chunk").read_text() == UNTIDY


def test_nothing_is_written_by_halves(write, monkeypatch, tmp_path):
    report = next(iter(files.read([write("a.chunk", UNTIDY)])))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    assert not files.rewrite(report, TIDY)
    assert [p.name for p in tmp_path.iterdir()] == ["a.chunk"] and (tmp_path / "a.chunk").read_text() == UNTIDY
