"""What importing costs and who may import whom."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "chunkdsl"
HEAVY = ("torch", "triton", "numpy", "greenlet", "jinja2", "chunkdsl.interp", "chunkdsl.sim", "chunkdsl.aot")


def imports(path):
    """Every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded(code):
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}\nprint(*sys.modules)"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()


def test_check_and_explain_import_nothing_heavy():
    spec = ROOT / "tests" / "cases" / "language" / "tp_mlp.chunk"
    code = f"from chunkdsl.cli import main\nassert main(['check', {str(spec)!r}]) == 0\nmain(['explain'])"
    modules = loaded(code)
    assert "chunkdsl.lower.schedule" in modules
    assert not [m for m in modules if m.startswith(HEAVY)]


def test_the_list_of_loaded_modules_would_show_a_heavy_one():
    assert "jinja2" in loaded("import jinja2")


def test_a_copy_laid_out_like_a_wheel_finds_its_grammar(tmp_path):
    """The wheel holds grammars/ inside the package (pyproject.toml), a checkout beside it."""
    package = tmp_path / "chunkdsl"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "a.chunk").write_text("dim step = 4\n")
    run = [sys.executable, "-m", "chunkdsl", "check", "a.chunk"]
    options = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": str(tmp_path)},
        "capture_output": True,
        "text": True,
    }
    without = subprocess.run(run, **options)
    assert without.returncode == 2 and "CD001" in without.stdout and "grammars/ is missing" in without.stdout
    shutil.copytree(ROOT / "grammars", package / "grammars")
    assert "a.chunk:1:5: error: CD108" in subprocess.run(run, **options).stdout


def test_only_the_parser_imports_lark():
    users = {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if "lark" in imports(p)}
    assert users == {"syntax/parse.py", "syntax/recover.py", "syntax/tables.py"}


@pytest.mark.parametrize(
    "folder, known",
    [
        ("syntax", ("record", "source", "diagnostics", "resources", "syntax", "check.syntax", "check.files", "check")),
        ("report", ("source", "diagnostics", "check.registry", "check.explain", "ir", "plan", "cost", "render",
                    "verify", "tune", "report")),
        ("plan", ("record", "source", "ir", "check", "runtime", "plan")),
    ],
)
def test_a_package_imports_only_what_lies_below_it(folder, known):
    for path in (PACKAGE / folder).glob("*.py"):
        for name in imports(path):
            if name.startswith("chunkdsl."):
                inner = name.removeprefix("chunkdsl.")
                assert any(inner == k or inner.startswith(f"{k}.") for k in known), f"{path.name} imports {name}"


def test_nothing_imports_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        if path.name not in ("__main__.py", "cli.py"):
            assert not [m for m in imports(path) if m.startswith(("chunkdsl.cli", "chunkdsl.commands"))], path
