import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chunkdsl import __version__, commands, files, pipeline
from chunkdsl.cli import main

GOOD = "mesh tp[2] over nvlink\ndim M = 4\n"
BAD = "mesh tp[2] over nvlink\ndim step = 4\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, data):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return name

    return write


def run(capsys, *argv):
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_good_spec_prints_nothing_and_exits_0(write, capsys):
    assert run(capsys, "check", write("a.chunk", GOOD)) == (0, "", "checked 1 spec\n")


def test_a_bad_spec_exits_1_with_its_path_as_given(write, capsys):
    code, out, err = run(capsys, "check", write("specs/a.chunk", BAD))
    assert (code, err) == (1, "checked 1 spec\n")
    assert out.startswith("specs/a.chunk:2:5: error: CD108[keyword-as-name]")
    assert run(capsys, "check", "./specs//a.chunk")[1].startswith("./specs//a.chunk:2:5:")


def test_folders_are_searched_in_order_and_paths_counted_once(write, capsys):
    for name in ("d/b.chunk", "d/a/z.chunk", "d/a.chunk", "d/.git/x.chunk"):
        write(name, BAD)
    write("d/notes.txt", "no spec")
    code, out, err = run(capsys, "check", "d", "d/b.chunk")
    assert code == 1 and err == "checked 3 specs\n"
    assert [line.split(":")[0] for line in out.splitlines() if "CD108" in line] == [
        "d/a.chunk",
        "d/a/z.chunk",
        "d/b.chunk",
    ]


def test_one_unreadable_path_does_not_hide_the_others(write, capsys):
    code, out, _ = run(capsys, "check", "gone.chunk", write("b.chunk", BAD))
    assert code == 2 and "gone.chunk: error: CD002[" in out and "b.chunk:2:5: error: CD108[" in out


def test_what_never_ends_is_not_read(write, capsys, monkeypatch):
    write("d/long.chunk", "# long\n" * 4)
    os.mkfifo("d/pipe.chunk")
    monkeypatch.setattr(files, "LARGEST", 20)
    code, out, _ = run(capsys, "check", "d", write("e.chunk", "mesh tp[2]\n"))
    assert code == 2 and [line for line in out.splitlines() if "CD" in line] == [
        "d/long.chunk: error: CD002[unreadable-path] cannot read this path: it is larger than 0 MiB",
        "d/pipe.chunk: error: CD002[unreadable-path] cannot read this path: it is no regular file",
    ]


def test_bytes_that_are_not_utf_8_are_placed(write, capsys):
    code, out, _ = run(capsys, "check", write("a.chunk", b"\xef\xbb\xbf# ok\n# \xff\n"))
    assert code == 2 and "offset 10 (line 2)" in out


def test_a_byte_order_mark_is_no_text(write, capsys):
    assert run(capsys, "check", write("a.chunk", b"\xef\xbb\xbf" + GOOD.encode()))[0] == 0


def test_a_path_with_a_nul_is_refused(capsys):
    code, out, _ = run(capsys, "check", "a\0b")
    assert code == 2 and "CD002" in out and "\0" not in out


def test_json_is_one_array_for_all_files(write, capsys):
    names = write("a.chunk", BAD), write("b.chunk", GOOD), write("c.chunk", BAD), "gone.chunk"
    code, out, _ = run(capsys, "check", "--output-format", "json", *names)
    found = json.loads(out)
    assert code == 2 and [(f["path"], f["code"]) for f in found] == [
        ("a.chunk", "CD108"),
        ("c.chunk", "CD108"),
        ("gone.chunk", "CD002"),
    ]
    assert run(capsys, "check", "--output-format", "json", "b.chunk") == (0, "[]\n", "checked 1 spec\n")


def test_output_is_the_same_twice(write, capsys):
    name = write("a.chunk", BAD)
    assert run(capsys, "check", name) == run(capsys, "check", name)


def test_later_stages_do_not_repeat_an_earlier_error(write, capsys):
    spec = "mesh tp[8]\ntensr x : bf16[M]\nop f(x) -> y { y = x }\n"  # x and M would be unknown names
    code, out, _ = run(capsys, "check", write("a.chunk", spec))
    assert code == 1 and out.count("error: CD") == 1


@pytest.mark.parametrize(
    "argv", [[], ["chek"], ["check"], ["check", "a", "--output-format", "xml"], ["check", "a", "--world", "2,x"],
             ["check", "a", "--world", "0"], ["check", "a", "--world", ""], ["explain", "a", "b"]]
)  # fmt: skip
def test_wrong_usage_exits_2_with_a_word_on_stderr(argv, capsys):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and "usage: chunkdsl" in err


def test_world_sizes_reach_the_pipeline_sorted(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(pipeline, "check", lambda paths, worlds: asked.append((paths, worlds)) or [])
    assert run(capsys, "check", "a", "--world", "8,2,3,2") == (0, "", "checked 0 specs\n")
    assert asked == [(["a"], (2, 3, 8))]


def test_help_and_version_exit_0(capsys):
    assert run(capsys, "--version") == (0, f"chunkdsl {__version__}\n", "")
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(name in out for name in commands.NAMES)


def test_explain(capsys):
    assert run(capsys, "explain", "CD108")[1].startswith("CD108 keyword-as-name (error)\n")
    assert "CD108  error    keyword-as-name\n" in run(capsys, "explain")[1]
    code, out, err = run(capsys, "explain", "keyword-as-a-name")
    assert (code, out) == (2, "") and "did you mean keyword-as-name" in err
    assert "lists all rules" in run(capsys, "explain", "zzzzzz")[2]


def test_a_failure_of_chunkdsl_is_a_finding_and_hides_no_other(write, capsys, monkeypatch):
    real = pipeline.check_report

    def fail(report):
        if report.source.path == "a.chunk":
            raise RuntimeError("boom\nand more")
        return real(report)

    monkeypatch.setattr(pipeline, "check_report", fail)
    monkeypatch.delenv("CHUNKDSL_DEBUG", raising=False)
    code, out, err = run(capsys, "check", write("a.chunk", GOOD), write("b.chunk", BAD))
    assert code == 2 and "CD108" in out and "Traceback" not in out + err
    assert "a.chunk: error: CD001[internal-error] chunkdsl failed: RuntimeError" in out and "boom\n" in out
    monkeypatch.setenv("CHUNKDSL_DEBUG", "1")
    assert "Traceback" in run(capsys, "check", "a.chunk")[2]


def test_a_failure_outside_the_stages_is_a_finding_in_the_format_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(pipeline, "check", lambda paths, worlds: 1 // 0)
    code, out, _ = run(capsys, "check", "a", "--output-format", "json")
    assert code == 2 and [f["code"] for f in json.loads(out)] == ["CD001"]


def test_every_command_is_a_module_with_configure_and_run():
    names = {p.stem for p in Path(commands.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(commands.NAMES) == names


def process(*argv, **options):
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "ascii", **options.pop("env", {})}
    command = [sys.executable, "-m", "chunkdsl", *argv]
    return subprocess.run(command, env=environment, capture_output=True, **options)


def test_a_terminal_of_another_encoding_is_no_failure(write):
    result = process("check", write("a.chunk", "dim gr\u00f6\u00dfe = 4\n"))
    assert result.returncode == 1 and b"CD116" in result.stdout and result.stdout.isascii()
    assert b"Traceback" not in result.stderr


def test_a_reader_that_stops_reading_is_no_failure(write):
    for i in range(300):
        write(f"d/{i}.chunk", BAD)
    command = f'"{sys.executable}" -m chunkdsl check d | head -n 1'
    root = str(Path(__file__).parent.parent)
    result = subprocess.run(command, shell=True, env={**os.environ, "PYTHONPATH": root}, capture_output=True)
    assert result.stdout.startswith(b"d/0.chunk:2:5") and b"Traceback" not in result.stderr
