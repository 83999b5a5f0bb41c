"""The grammar for highlighting is in step with the language: keywords, keys, dtypes, functions, terminals."""

import json
import re
from pathlib import Path

import pytest

from chunkdsl.check.syntax import ITEMS
from chunkdsl.lower.calls import LATER, USAGE
from chunkdsl.lower.policies import KEYS
from chunkdsl.lower.policy_values import LATER_KEYS
from chunkdsl.lower.tensors import DTYPES
from chunkdsl.syntax.parse import grammar
from chunkdsl.syntax.tokens import tokens_of

GRAMMARS = Path(__file__).parent.parent.parent / "grammars"
TEXTMATE = json.loads((GRAMMARS / "chunk.tmLanguage.json").read_text(encoding="utf-8"))
PACKAGE = json.loads((GRAMMARS / "vscode" / "package.json").read_text(encoding="utf-8"))
SPECS = sorted((GRAMMARS.parent / "specs").glob("*.chunk")) + sorted(
    (GRAMMARS.parent / "tests" / "cases" / "language").glob("*.chunk"))


def patterns(node):
    """(scope, expression) of every rule, in order."""
    for rule in node.get("patterns", [node]):
        if "include" in rule:
            yield from patterns(TEXTMATE["repository"][rule["include"][1:]])
        elif "patterns" in rule:
            yield from patterns(rule)
        else:
            scopes = {0: rule["name"]} if "name" in rule else {int(k): v["name"] for k, v in rule["captures"].items()}
            yield scopes, re.compile(rule["match"], re.MULTILINE)


RULES = list(patterns(TEXTMATE))


def listed(scope):
    """The words that rules of a scope list."""
    found = [e.pattern for scopes, e in RULES if any(s.startswith(scope) for s in scopes.values())]
    groups = [group for text in found for group in re.findall(r"\((?:\?:)?([a-z_0-9|]+)\)", text)]
    return {word for group in groups for word in group.split("|")}


def scopes_of(text):
    """Scope of each character, as an editor paints it: at each place the first rule that matches there."""
    painted, at = [""] * len(text), 0
    while at < len(text):
        matches = [(e.search(text, at), s) for s, e in RULES]
        found = [(m.start(), i, m, s) for i, (m, s) in enumerate(matches) if m and m.end() > m.start()]
        if not found:
            break
        _, _, match, scopes = min(found, key=lambda f: f[:2])
        for group, scope in scopes.items():
            for i in range(*match.span(group)) if match.span(group)[0] >= 0 else ():
                painted[i] = scope
        at = match.end()
    return painted


def test_the_keywords_are_those_of_the_grammar():
    words = listed("keyword") | listed("constant.language")
    assert words - {"B", "KiB", "MiB", "GiB"} == set(grammar().keywords)
    assert listed("keyword.declaration") == set(ITEMS)


def test_keys_dtypes_and_functions_are_those_of_the_compiler():
    assert listed("variable.other.property") == {*KEYS, *LATER_KEYS}
    assert listed("storage.type") == set(DTYPES)
    assert listed("support.function") == {*USAGE, *LATER}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.name)
def test_a_spec_is_painted_as_it_is_read(path):
    """Every keyword, number, string and comment that the parser sees has a scope of its kind, and no name has one."""
    text = path.read_text(encoding="utf-8")
    painted = scopes_of(text)
    keywords = set(grammar().keywords.values())
    for token in tokens_of(text)[:-1]:
        scope = painted[token.start]
        if token.kind in keywords:
            assert scope.startswith(("keyword", "constant.language")), token
        elif token.kind in ("INT", "FLOAT", "TILE", "BYTES"):
            assert scope.startswith("constant.numeric"), token
        elif token.kind == "STRING":
            assert scope.startswith("string"), token
        elif token.kind in ("NAME", "KEY"):
            assert not scope.startswith(("keyword", "constant", "string", "comment")), token
    for match in re.finditer(r"#", text):
        assert painted[match.start()].startswith("comment")


def test_a_missing_keyword_would_be_seen():
    painted = scopes_of("op f(x) -> y { y = with }")
    assert painted[19].startswith("keyword") and painted[17] == "keyword.operator.chunk" and painted[15] == ""


def test_the_extension_names_files_that_are_there():
    contributed = PACKAGE["contributes"]
    (language,), (textmate,) = contributed["languages"], contributed["grammars"]
    assert language["extensions"] == [".chunk"] and textmate["scopeName"] == TEXTMATE["scopeName"]
    for path in (language["configuration"], textmate["path"]):
        assert (GRAMMARS / Path(path).name).is_file() and f'"{Path(path).name}"' in (
            GRAMMARS / "vscode" / "build.mjs").read_text()
    assert (GRAMMARS / "vscode" / contributed["snippets"][0]["path"]).is_file()
    assert json.loads((GRAMMARS / "language-configuration.json").read_text())["comments"] == {"lineComment": "#"}


def test_snippets_are_specs_once_filled_in():
    from chunkdsl.pipeline import check_source
    from chunkdsl.source import Source

    snippets = json.loads((GRAMMARS / "vscode" / "snippets.json").read_text())
    filled = {}
    for name, snippet in snippets.items():
        body = snippet["body"]
        text = "\n".join(body) if isinstance(body, list) else body
        filled[name] = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", text).replace("$0", "")
    report = check_source(Source("x.chunk", filled["A whole spec"] + "\n")).report
    assert report.diagnostics == ()
    for name in ("mesh", "dim", "tensor", "policy"):
        report = check_source(Source("x.chunk", f"{filled[name]}\n")).report
        assert not [d for d in report.diagnostics if d.code.startswith("CD1")], name
