import shlex
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from chunkdsl import __version__, pipeline, replace
from chunkdsl.check.explain import describe, find_rule, list_rules, load_rules, near_rules
from chunkdsl.cli import main
from chunkdsl.diagnostics import Report, Severity
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse
from chunkdsl.tune.evidence import Origin, Result, Tuned, dump

RULES = load_rules()
SYNTAX = [c for c in RULES if c.startswith("CD1")]
FILES = [c for c in RULES if c.startswith("CD0")]
ROOT = Path(__file__).parent.parent.parent
PLAN_FILES = Path(__file__).parent.parent / "plan" / "imported"
# The command ran, and the spec, module or plan file is not as it should be.
FOUND_WANTING = ("CD005", "CD006", "CD011", "CD022", "CD023", "CD024", "CD025", "CD026")


def codes(text):
    report = Report(Source("x.chunk", text))
    parse(report.source, report)
    return [d.code for d in report.diagnostics]


@pytest.mark.parametrize("code", SYNTAX)
def test_a_syntax_rule_finds_its_example_and_not_the_mended_one(code):
    assert codes(RULES[code].fails) == [code]
    assert codes(RULES[code].mended) == []


SPEC = b"""mesh tp[2] over nvlink
dim M = 1..64
tensor x : f32[M, 64 @ tp]
tensor w : f32[64 @ tp, 64]
op f(x, w) -> y { y = reduce_scatter(x @ w, M) with { tile = 32x32x32 } }
"""


def unless_locked(write):
    """Permissions are none for root, who runs tests in a container."""

    def put(path, data):
        if path.startswith("locked/"):
            raise PermissionError(13, "Permission denied")
        write(path, data)

    return put


def tuned_text(name):
    """A file of measurements of which there is `half`, of a `changed` spec, `rehearsed`, or of `other` hardware."""
    digest = "0" if name == "changed" else sha256(SPEC).hexdigest()
    gpu = "NVIDIA H200" if name == "other" else "the cost model's h200"
    origin = Origin(digest, gpu, (("chunkdsl", __version__),), name == "rehearsed")
    text = dump(Tuned(origin, (Result("f", 2, (("M", 64),), (), (5.0,), (6.0,)),)))
    return text[:-9] if name == "half" else text


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files that the examples of CD0 speak of."""
    good = b"mesh tp[2] over nvlink\ndim M = 4\n"
    (tmp_path / "specs").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "good.chunk").write_bytes(good)
    (tmp_path / "specs" / "good.chunk").write_bytes(b"\xef\xbb\xbfchunk 1\n" + good)
    (tmp_path / "latin1.chunk").write_bytes(b"# gr\xf6sse\n" + good)
    (tmp_path / "next.chunk").write_bytes(b"chunk 2\n" + good)
    for name in ("mlp.chunk", "built.chunk", 'q"q.chunk'):
        (tmp_path / name).write_bytes(SPEC)
    long = SPEC.replace(b"1..64", b"1..1048576").replace(b"tile = ", b"chunk = 1 along M, tile = ")
    (tmp_path / "long.chunk").write_bytes(long)
    puts, ring = ((PLAN_FILES / n).read_text() for n in ("put_all_gather_3.json", "ring_all_gather_4.xml"))
    files = {
        "ring.json": (3, puts), "torn.json": (3, puts[:999]), "packets.json": (3, puts.replace('"Simple"', '"LL"')),
        "small.json": (4, puts), "pairs.xml": (4, ring), "stuck.xml": (4, ring.replace('type="s"', 'type="nop"', 1)),
        "lost.json": (4, None),
    }  # fmt: skip
    for name, (world, text) in files.items():
        use = f'mesh tp[{world}]\nuse plan "{name}" as r : all_gather over tp\n'
        (tmp_path / name).with_suffix(".chunk").write_text(use)
        if text is not None:
            (tmp_path / name).write_text(text)
    for name in ("half", "changed", "rehearsed", "other"):
        (tmp_path / f"{name}.chunk").write_bytes(SPEC)
        (tmp_path / f"{name}.tuned.json").write_text(tuned_text(name))
    (tmp_path / "ignoring.chunk").write_bytes(b"dim M = 4     # chunk: ignore[CD203]\n")
    (tmp_path / "bad" / "specs").mkdir(parents=True)
    (tmp_path / "bad" / "specs" / "good.chunk").write_bytes(good)
    (tmp_path / "bad" / "pyproject.toml").write_text("[tool.chunkdsl]\nselct = ['CD2']\n")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "untidy.chunk").write_bytes(b"dim M=4\n")
    shutil.copy(ROOT / "specs" / "decode_all_reduce.chunk", tmp_path / "specs" / "decode_all_reduce.chunk")
    shutil.copy(ROOT / "tests" / "gpu" / "ar_switch.chunk", tmp_path / "switched.chunk")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "BUILT_FOR", (1,))
    monkeypatch.setattr(replace, "replace_file", unless_locked(replace.replace_file))


@pytest.mark.parametrize("code", FILES)
def test_a_command_of_a_file_rule_finds_its_example_and_not_the_mended_one(code, place, monkeypatch, capsys):
    if code == "CD006":
        assert main(["build", "built.chunk"]) == 0
    capsys.readouterr()
    mended = shlex.split(RULES[code].mended, comments=True)
    assert mended[0] == "chunkdsl" and main(mended[1:]) == 0
    assert "error" not in capsys.readouterr().out
    if code == "CD001":  # the defect that its comment speaks of
        monkeypatch.setattr(pipeline, "check_report", lambda report: 1 // 0)
    if code == "CD031":  # settings are those of the current folder
        monkeypatch.chdir("bad")
    found = 0 if RULES[code].severity is Severity.WARNING else 1 if code in FOUND_WANTING else 2
    assert main(shlex.split(RULES[code].fails, comments=True)[1:]) == found
    assert f"{code}[{RULES[code].name}]" in capsys.readouterr().out


def test_rules_are_found_by_code_in_any_case_and_by_name():
    rule = RULES["CD107"]
    assert find_rule("CD107") is find_rule("cd107") is find_rule("wrong-separator") is rule
    assert find_rule("CD10") is None


def test_near_rules_are_suggested():
    assert "CD107" in near_rules("CD170")
    assert near_rules("cd10") == ["CD101", "CD102", "CD103"] and near_rules("CD1011") == ["CD101"]
    assert near_rules("wrong-seperator")[0] == "wrong-separator"
    assert all(name.startswith("contracted-") for name in near_rules("contracted")) and near_rules("zzzzzzzz") == []


def test_rules_are_searched_by_words_of_their_texts(capsys):
    assert main(["explain", "--search", "double quotes"]) == 0
    assert capsys.readouterr().out == "CD115  error    single-quoted-string\n"
    assert main(["explain", "--search", "cd11 unit"]) == 0 and "CD112" in capsys.readouterr().out
    assert main(["explain", "--search", "double", "quotes"]) == 0 and "CD115" in capsys.readouterr().out
    assert main(["explain", "--search", "zebra"]) == 2 and "zebra" in capsys.readouterr().err


def test_a_description_holds_the_text_and_both_examples():
    text = describe(RULES["CD109"])
    assert text.startswith("CD109 misspelt-keyword (error)\n\nA word stands")
    assert "    mesh tp[8] ovr nvlink\n" in text and text.endswith("    mesh tp[8] over nvlink\n")


def test_the_list_has_every_rule_once_in_order():
    lines = list_rules().splitlines()
    assert [line.split()[0] for line in lines] == sorted(RULES) and len(RULES) == len(lines) > 28


@pytest.mark.parametrize("code", RULES)
def test_codes_and_names_are_well_formed(code):
    rule = RULES[code]
    assert code[:2] == "CD" and code[2:].isdigit() and len(code) == 5
    assert rule.name == rule.name.lower() and " " not in rule.name and rule.text
