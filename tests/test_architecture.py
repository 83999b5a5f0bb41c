"""The shape of the code base: import direction, sizes of files, what runtime/ may use, no paths of some machine."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "chunkdsl"

# A module imports only from its own entry and from those above it. `check` stands for the modules of rules in it, which
# the passes below call; what proves plans comes after them. Imports for type annotations alone do not count.
ORDER = (
    "record",
    "source",
    "diagnostics",
    "resources",
    "replace",
    "parsing",
    "starts",
    "ir",
    "check.registry",
    "check",
    "syntax",
    "runtime",
    "plan",
    "interp",
    "kernels",
    "lower",
    "check.prove",
    "check.worlds",
    "check.proofs",
    "cost",
    "render",
    "tune",
    "sim",
    "aot",
    "verify",
    "report",
    "crash",
    "streams", "files",
    "ignores",
    "mend",
    "settings",
    "pipeline",
    "tuning",
    "kits",
    "api",
    "editor",
    "lsp",
    "arguments",
    "commands",
    "cli",
    "__main__",
)
LONGEST_FILE, LONGEST_TEMPLATE = 400, 150


def module_name(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(p): p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"}


def imported(text):
    """Dotted names that a module imports, those under `if TYPE_CHECKING` left out."""
    skip = set()
    for node in ast.walk(tree := ast.parse(text)):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skip.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if id(node) in skip:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("chunkdsl.") in MODULES else node.module


def entry(name):
    """The entry of ORDER that a module of chunkdsl belongs to: the longest that fits."""
    fitting = [e for e in ORDER if name == e or name.startswith(f"{e}.")]
    assert fitting, f"{name} is not in ORDER: say where it belongs"
    return max(fitting, key=len)


def upward(name, text):
    """Imports of module `name` that lead down the list."""
    own = ORDER.index(entry(name))
    inner = [i.removeprefix("chunkdsl.") for i in imported(text) if i.startswith("chunkdsl.")]
    return [i for i in inner if ORDER.index(entry(i)) > own]


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    assert upward(name, MODULES[name].read_text(encoding="utf-8")) == []


def test_an_import_the_other_way_is_seen():
    assert upward("syntax.parse", "from chunkdsl.lower.program import lower") == ["lower.program"]
    assert upward("check.names", "def f():\n    import chunkdsl.check.prove") == ["check.prove"]
    assert upward("lower.ops", "from chunkdsl.check import names\nfrom chunkdsl.syntax import nodes") == []
    hinted = "if TYPE_CHECKING:\n    from chunkdsl.lower.expressions import File\n"
    assert upward("ir.graph", hinted) == [] and upward("ir.graph", hinted.splitlines()[1].strip()) != []


def test_python_is_parsed_in_one_place():
    """Not beside it: a second thread that parses at the same time breaks both in CPython 3.11 (parsing.py)."""
    found = [n for n, f in MODULES.items() if re.search(r"\bast\.parse\(", f.read_text(encoding="utf-8"))]
    assert found == ["parsing"]


def foreign(text):
    """Imports that runtime/ may not have: it is copied into modules that run without chunkdsl."""
    allowed = {"torch", "triton", *sys.stdlib_module_names}
    return [i for i in imported(text) if i.split(".")[0] not in allowed and not i.startswith("chunkdsl.runtime")]


@pytest.mark.parametrize("path", sorted((PACKAGE / "runtime").glob("*.py")), ids=lambda p: p.name)
def test_runtime_uses_only_torch_triton_and_the_standard_library(path):
    assert foreign(path.read_text(encoding="utf-8")) == []


def test_a_foreign_import_of_runtime_is_seen():
    text = "def f():\n    import numpy\nfrom chunkdsl.source import Span\nimport ctypes"
    assert sorted(foreign(text)) == ["chunkdsl.source", "numpy"]


def too_long(paths, limit):
    """(path, lines) of files with more lines than `limit`."""
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    return [(p.name, n) for p, n in lines.items() if n > limit]


def test_files_stay_short():
    assert too_long(PACKAGE.rglob("*.py"), LONGEST_FILE) == []
    assert too_long((ROOT / "templates").rglob("*.jinja"), LONGEST_TEMPLATE) == []


def test_a_long_file_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("\n" * 401)
    (tmp_path / "b.py").write_text("\n" * 400)
    assert too_long(sorted(tmp_path.iterdir()), LONGEST_FILE) == [("a.py", 401)]


FOLDERS = ("chunkdsl", "grammars", "templates", "specs", "examples", "tests", ".ci")
TEXTS = {".py", ".jinja", ".lark", ".chunk", ".md", ".toml", ".txt", ".json", ""}
CACHES = {"node_modules", "out", "__pycache__", ".ruff_cache", ".pytest_cache", ".hypothesis"}
MACHINE_PATH = re.compile(r"(?<![\w./~$}])/(?:tmp|home|root|work|opt|mnt|srv|scratch|Users|var)/\w[\w./-]*")


def test_no_file_names_a_place_on_some_machine():
    files = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if not CACHES & set(p.parts)]
    files += [p for p in ROOT.iterdir() if p.suffix in TEXTS and p.name != ".git"]
    files = [p for p in files if p.is_file() and p.suffix in TEXTS and p != Path(__file__)]
    assert len(files) > 100
    for path in files:
        found = MACHINE_PATH.findall(path.read_text(encoding="utf-8"))
        if (ROOT / "tests") in path.parents:  # tests may make up a path as an argument
            found = [p for p in found if not p.startswith("/tmp/")]
        assert found == [], path


def test_a_place_on_a_machine_is_seen():
    assert MACHINE_PATH.findall('open("/home/me/x.py")') == ["/home/me/x.py"]
    assert MACHINE_PATH.findall("a/tmp/b ./work/x tests/var/x") == []
