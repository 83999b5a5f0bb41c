"""Standard streams that are closed, full, pipes or marked: what is said, the exit code, and never a traceback."""

import os
import subprocess
import sys

import pytest

from chunkdsl.cli import main
from chunkdsl.lsp.documents import Document
from chunkdsl.streams import Closed, lost_output

BAD, GOOD = "mesh tp[2]\ndim step = 4\n", "mesh tp[2]\ndim M = 4\n"
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@pytest.fixture
def specs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.chunk").write_text(BAD)
    (tmp_path / "good.chunk").write_text(GOOD)


@pytest.mark.parametrize(("line", "code", "said"), [
    ("fmt - <&-", 2, "cannot read this path: standard input is closed"),
    ("check bad.chunk >&-", 2, "cannot write the output: Bad file descriptor"),
    ("check bad.chunk 2>&-", 1, "CD108"),
    pytest.param("check bad.chunk >/dev/full", 2, "cannot write the output: No space left on device", marks=FULL),
    pytest.param("check bad.chunk 2>/dev/full", 2, "CD108", marks=FULL),
])  # fmt: skip
def test_streams_that_are_closed_or_full(specs, line, code, said):
    command = f'"{sys.executable}" -m chunkdsl {line}'
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(__file__)), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == code and said in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "CD001" not in ran.stdout + ran.stderr


def test_a_closed_stream_complains_only_of_what_was_written():
    closed = Closed()
    closed.flush()
    closed.write("x")
    with pytest.raises(OSError) as raised:
        closed.flush()
    assert lost_output(raised.value)
    assert not lost_output(FileNotFoundError(2, "No such file", "x.chunk")) and not lost_output(ValueError())


def test_a_pipe_is_refused_and_one_that_a_shell_has_opened_is_read(specs, capsys):
    os.mkfifo("pipe.chunk")
    assert main(["check", "pipe.chunk"]) == 2
    assert "cannot read this path: it is no regular file" in capsys.readouterr().out
    reader, writer = os.pipe()
    os.write(writer, BAD.encode())
    os.close(writer)
    assert main(["check", f"/dev/fd/{reader}"]) == 1
    assert "CD108" in capsys.readouterr().out
    os.close(reader)


def test_check_reads_standard_input_once_and_cannot_mend_it(specs, capsys, monkeypatch):
    with open("bad.chunk") as text:
        monkeypatch.setattr(sys, "stdin", text)
        assert main(["check", "-", "good.chunk", "-"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("-:2:5: error: CD108") and err == "checked 2 specs\n"
    assert main(["check", "-", "--fix"]) == 2
    assert "use --diff" in capsys.readouterr().err


def test_new_writes_to_standard_output_and_suggests_names(specs, capsys):
    assert main(["new", "gemm_rs", "-"]) == 0
    assert "op " in capsys.readouterr().out and not os.path.exists("-")
    assert main(["new", "tpmlp"]) == 2
    assert "did you mean tp_mlp?" in capsys.readouterr().out


def test_a_byte_order_mark_in_an_editor_s_text_is_counted_and_not_read():
    found = Document("file:///a.chunk", "a.chunk", 1, "\ufeff" + GOOD, "utf-16", None)
    assert found.text == GOOD and len(found.index.segments) == 2
    for offset, line, character in ((0, 0, 1), (4, 0, 5), (11, 1, 0), (13, 1, 2)):
        place = found.lines.position(offset)
        assert (place.line, place.character) == (line, character) and found.lines.offset(place) == offset
