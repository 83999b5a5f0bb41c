"""Commands, links, codes and specs in the documents are tried. Tables of the reference: test_docs.py."""

import re
import shlex
from pathlib import Path

import pytest

from chunkdsl.check.explain import list_rules
from chunkdsl.cli import parser
from chunkdsl.commands import NAMES
from chunkdsl.diagnostics import Report
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "grammars/README.md"]
DOCUMENTS += ["docs/failures.md", "docs/layers.md"]


def blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [(m[1].strip(), m[2]) for m in re.finditer(r"^```chunk([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


# ---- commands


def readme_command(ending):
    found = re.findall(rf"^pip install .* && {ending}$", README, re.MULTILINE)
    assert len(found) == 1
    return found[0]


def test_the_readme_has_its_two_commands():
    install = "pip install -c tests/constraints.txt -e"
    assert readme_command(r"chunkdsl verify .*") == f"{install} '.[run]' && chunkdsl verify specs/tp_mlp.chunk"
    assert readme_command("pytest") == f"{install} '.[test]' && pytest"


def test_ci_runs_the_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    pattern = re.search(r'grep -m 1 -E "([^"]+)" README.md', script)[1]
    assert [line for line in README.splitlines() if re.search(pattern, line)] == [readme_command("pytest")]
    assert re.search(r'^eval "\$command"[^|;&]*\Z', script, re.MULTILINE), "pytest must be the last thing that runs"


def test_commands_in_the_documents_are_commands():
    found = set()
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        found.update(re.findall(r"`(chunkdsl [a-z][^`\n]*)`|(?:^|&& )(chunkdsl [a-z].*)$", text, re.MULTILINE))
    commands = sorted({a or b for a, b in found})
    assert len(commands) > 5
    for words in (shlex.split(command, comments=True) for command in commands):
        if len(words) > 2:
            parser().parse_args(words[1:])
        else:
            assert words[1] in NAMES, words


def test_files_that_the_commands_name_exist():
    for path in re.findall(r"(?:specs|tests|examples)/[\w./]*\w", README):
        if path != "tests/bench/RESULTS.md":  # written where there is a GPU
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("http") and not target.endswith("RESULTS.md"):
            assert (ROOT / name).parent.joinpath(target.split("#")[0]).exists(), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_codes_in_the_documents_are_rules(name):
    known = set(re.findall(r"CD\d{3}", list_rules()))
    assert set(re.findall(r"CD\d{3}", (ROOT / name).read_text(encoding="utf-8"))) <= known


# ---- specs in the documents


@pytest.mark.parametrize("name, kind, text", [(n, *b) for n in DOCUMENTS for b in blocks(n)])
def test_specs_are_as_they_say(name, kind, text):
    if kind == "fragment":
        report = Report(Source("fragment.chunk", text))
        parse(report.source, report)
        assert not report.diagnostics
    else:
        assert kind == "" and check_source(Source("doc.chunk", text)).report.diagnostics == ()


def test_there_are_specs_to_check():
    kinds = [kind for kind, _ in blocks("grammars/README.md")]
    assert kinds.count("") >= 4 and kinds.count("fragment") >= 3


def test_the_whole_file_is_the_shipped_one():
    def bare(text):
        return [line for raw in text.splitlines() if (line := raw.split("#")[0].split())]

    shipped = (ROOT / "specs" / "tp_mlp.chunk").read_text(encoding="utf-8")
    assert bare(blocks("grammars/README.md")[0][1]) == bare(shipped)
