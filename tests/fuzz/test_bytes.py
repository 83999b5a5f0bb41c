"""Any bytes: no traceback, no hang, bounded memory. Seeds that found something once stand in seeds/."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_probe import probe

from chunkdsl.cli import main

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SPECS = [p.read_bytes() for p in sorted((ROOT / "tests" / "cases" / "language").glob("*.chunk"))]
SPECS += [p.read_bytes() for p in sorted((ROOT / "specs").glob("*.chunk"))]  # kernels of users are not found from here
WORDS = [w.encode() for w in "mesh dim tensor op policy plan with over {} () [] @ -> .. = , : # \"".split()]
WORDS += [b"\r\n", b"\r", b"\t", b"\0", b"\xef\xbb\xbf", b"\xff", "\u2028".encode(), b"9" * 40, b"\n", b"  ",
          b"# chunk: ignore[CD2"]
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(WORDS), st.integers(0, 30)), max_size=5)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SPECS), CHANGES)
def test_a_mutated_spec(data, changes):
    for place, word, removed in changes:
        at = int(place * len(data))
        data = data[:at] + word + data[at + removed :]
    probe(data)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | st.lists(st.sampled_from(WORDS), max_size=30).map(b" ".join))
def test_any_bytes(data):
    probe(data)


@pytest.mark.parametrize("path", sorted((HERE / "seeds").iterdir()), ids=lambda p: p.name)
def test_a_recorded_seed(path):
    probe(path.read_bytes())


GOOD = b"mesh tp[2]\ndim M = 4\ntensor x : bf16[M @ tp, 4]\nop f(x) -> y { y = all_gather(x) * 2 }\n"


@pytest.mark.parametrize("data", [
    GOOD.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + GOOD, GOOD.replace(b" ", b"\t"), GOOD + b"# \0 \xc2\x85 end",
], ids=["CRLF", "BOM", "tabs", "NUL in a comment"])  # fmt: skip
def test_what_editors_leave_behind_is_no_mistake(data):
    assert probe(data).diagnostics == ()


HOSTILE = {
    "huge integer": b"dim M = " + b"9" * 100_000,
    "huge float": b"policy p { a = 1e" + b"9" * 10_000 + b" }",
    "deep parentheses": b"dim M = " + b"(" * 5_000 + b"4" + b")" * 5_000,
    "deep expression": b"op f(x) -> y { y = " + b"-" * 10_000 + b"x }",
    "deep blocks": b"plan r(t) : all_gather over tp {" + b" lane 0 {" * 5_000,
    "long chain": b"dim M = 1" + b" + 1" * 10_000,
    "chained dims": b"".join(b"dim D%d = D%d + D%d\n" % (i, i + 1, i + 1) for i in range(500)) + b"dim D500 = 4\n",
    "doubled dims": b"dim D0 = 1..8\n" + b"".join(b"dim D%d = D%d * D%d\n" % (i + 1, i, i) for i in range(60)),
    "doubled values": b"mesh tp[2]\ndim M = 4\ntensor x : bf16[M, 4]\nop f(x) -> y40 {\n y0 = x * 2\n"
    + b"".join(b" y%d = y%d + y%d\n" % (i + 1, i, i) for i in range(40)) + b"}\n",
    "many items": b"dim step = 4\n" * 500,
    "one long line": b"# " + b"x" * 1_000_000,
    "quotes": b'use plan ' + b'"' * 20_001,
    "NULs": b"\0" * 100_000,
    "column one": b"a\n" * 500,
    "open brackets": b"op f(\n" * 1_000,
    "ignores": b"dim M = 4 # chunk: ignore[" + b"CD203," * 5_000 + b"]",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_bounded_time_and_memory(name, tmp_path):
    """Many times what the slowest takes on a busy machine; 1 GiB of address space."""
    (tmp_path / "a.chunk").write_bytes(HOSTILE[name])
    code = "import sys; from chunkdsl.cli import main; sys.exit(max(main([c, 'a.chunk']) for c in ('check', 'fmt')))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, timeout=240,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)))
    output = done.stdout + done.stderr
    assert done.returncode in (0, 1) and b"Traceback" not in output and b"CD001" not in output, output[:2000]


def test_links_and_files_that_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.chunk").write_bytes(GOOD)
    os.symlink("a.chunk", "link.chunk")
    os.symlink("gone.chunk", "dangling.chunk")
    os.symlink(".", "loop")
    os.mkdir("folder.chunk")
    os.mkfifo("pipe.txt")
    assert main(["check", "link.chunk"]) == 0
    assert main(["check", "dangling.chunk"]) == 2 and "CD002" in capsys.readouterr().out
    assert main(["check", "folder.chunk"]) == 2 and "CD004" in capsys.readouterr().out
    assert main(["check", "."]) == 2, "the dangling link is named, the loop is not followed"
    assert main(["check", "a.chunk/b"]) == 2
    os.unlink("dangling.chunk")
    monkeypatch.setattr("builtins.open", refuse("a.chunk"))
    assert main(["check", "a.chunk"]) == 2 and "Permission denied" in capsys.readouterr().out


def refuse(name, real=open):
    """Permissions are none for root."""

    def opened(path, *args, **named):
        if path == name:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **named)

    return opened
