"""ruff finds nothing in the repository (pyproject.toml says which rules), and the shipped specs are formatted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chunkdsl.cli import main

ROOT = Path(__file__).parent.parent


def ruff(*args):
    """(exit code, output) of `ruff check`; skips the test where ruff is not installed."""
    beside = Path(sys.executable).parent / "ruff"
    program = str(beside) if beside.exists() else shutil.which("ruff")
    if program is None:
        pytest.skip("ruff is not installed: pip install -e '.[test]'")
    command = [program, "check", "--no-cache", "--output-format", "concise", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_repository_is_clean():
    code, output = ruff(".")
    assert code == 0, "\n".join(output.splitlines()[:40])


@pytest.mark.parametrize("text, rule", [
    ("import os\n", "F401"),
    ("x = '" + "a" * 130 + "'\n", "E501"),
    ("def f(a=[]):\n    return a\n", "B006"),
])  # fmt: skip
def test_a_finding_is_seen(tmp_path, text, rule):
    (tmp_path / "bad.py").write_text(text)
    code, output = ruff("--config", str(ROOT / "pyproject.toml"), str(tmp_path))
    assert code == 1 and rule in output


def test_the_shipped_specs_are_formatted(capsys):
    assert main(["fmt", "--check", str(ROOT / "specs")]) == 0, f"run `chunkdsl fmt specs`: {capsys.readouterr().out}"


def test_test_files_have_names_of_their_own():
    """pytest imports them by their names alone, and stops at two of one name once it has loaded either."""
    names = [p.name for p in sorted((ROOT / "tests").rglob("*.py")) if p.name != "conftest.py"]
    assert [n for n in names if names.count(n) > 1] == []
