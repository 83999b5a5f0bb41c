"""The text of a module: what it imports, whether it stands alone, and that its comments lead back to the spec."""

import ast
import os
import re
import subprocess
import sys

import pytest

from chunkdsl import pipeline
from chunkdsl.render.inline import helpers
from chunkdsl.source import Source

SPEC = """# A comment, so that ops do not start at the top.
mesh tp[2] over nvlink
dim M = 1..256
dim H = 512
dim F = 512
tensor x  : bf16[M @ tp, H]
tensor w1 : bf16[F @ tp, H]
tensor b1 : bf16[F @ tp]
tensor w2 : bf16[H, F @ tp]

op mlp(x, w1, b1, w2) -> y {
    h = gelu(all_gather(x) @ w1.T + b1) with { tile = 64x64x32 }
    y = reduce_scatter(h @ w2.T, M) with { route = ring, via = ldst, tile = 64x64x32 }
}

tensor p : f32[M, H] sum tp
op total(p) -> q {
    q = all_reduce(p)
}
"""
PATH = "specs/two ops.chunk"


@pytest.fixture(scope="module")
def built():
    checked = pipeline.check_source(Source(PATH, SPEC))
    pipeline.prove(checked, (1, 2))
    pipeline.render(checked)
    assert not checked.report.diagnostics and checked.proven == (1, 2)
    return checked


@pytest.fixture(scope="module")
def text(built):
    return built.module


def test_it_imports_the_standard_library_torch_and_triton_alone(text):
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module.split(".")[0])
    assert found >= {"torch", "triton"} and found - {"torch", "triton"} <= sys.stdlib_module_names
    assert "chunkdsl" not in {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def test_it_is_imported_where_chunkdsl_is_blocked(text, tmp_path):
    (tmp_path / "made.py").write_text(text)
    code = (
        "import sys, importlib.abc\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in ('chunkdsl', 'jinja2', 'lark'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "try:\n    import chunkdsl\n    print('not blocked')\nexcept ImportError:\n    pass\n"
        "import made\nprint(made.TwoOps.PROVEN, *made.TwoOps.OPS)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("(1, 2) mlp total\n", 0), run.stderr


def test_comments_lead_to_the_line_of_the_statement_or_op(text):
    lines = SPEC.splitlines()
    tied = re.findall(rf"^ *# (?:chunk: |---- )?{re.escape(PATH)}:(\d+)  ?(.*)$", text, re.MULTILINE)
    assert len(tied) >= 5
    seen = set()
    for number, what in tied:
        line = lines[int(number) - 1]
        name, _, said = what.partition(": ")
        seen.add(line.split()[0])
        if what.startswith("op "):
            assert line.startswith(what)
        elif said:
            assert said in " ".join(line.split()) or line.split()[0] == name.removeprefix("mlp_").split("_")[0]
    assert {"op", "h", "y", "q"} <= seen
    for number in re.findall(rf"{re.escape(PATH)}:(\d+)", text):
        assert lines[int(number) - 1].startswith(("op ", "    h =", "    y =", "    q ="))


def test_the_kernel_of_each_launch_carries_a_chunk_comment(text, built):
    names = {launch.name for op in built.schedule.ops for launch in op.launches}
    kernels = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name in names]
    assert len(kernels) == len(names) >= 5
    lines, spec = text.splitlines(), SPEC.splitlines()
    for kernel in kernels:
        head = "\n".join(lines[kernel.lineno - 1 : kernel.body[1].lineno])
        comment = re.search(rf"# chunk: {re.escape(PATH)}:(\d+)", head)
        assert comment, kernel.name
        statement = spec[int(comment[1]) - 1]
        assert statement.split()[0] in kernel.name.split("_"), (kernel.name, statement)
        assert statement.strip().startswith(ast.get_docstring(kernel)), "the statement, without its policy"


def test_no_date_no_absolute_path_no_trailing_blanks(text):
    assert not re.search(r"\b20\d\d-\d\d|\b\d\d:\d\d:\d\d\b", text)
    assert not re.search(r"[\"' (](/(?:home|root|tmp|usr|work|var)/|[A-Z]:\\)", text)
    assert all(line == line.rstrip() for line in text.splitlines()) and text.endswith("\n") and "\t" not in text


def test_the_command_in_the_header_can_be_given_to_a_shell(text):
    assert "    chunkdsl build 'specs/two ops.chunk'\n" in text


def test_a_module_names_what_it_was_made_from(text):
    import hashlib

    assert hashlib.sha256(SPEC.encode()).hexdigest() in text


def test_helpers_have_names_of_their_own():
    """Files of runtime/ become one: of two values of one name every user of the first would get the second."""
    names = [helper.name for helper in helpers()]
    assert len(names) == len(set(names))
