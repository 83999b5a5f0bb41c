"""Findings after a change are those of the whole text, however little of it was looked at."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.editor import lint as lints
from chunkdsl.editor.lint import lint, lint_whole
from chunkdsl.editor.segments import Relations, excerpt, segments

BENCH = Path(__file__).parent.parent / "bench" / "relint.py"
namespace: dict = {"__name__": "relint"}
exec(compile(BENCH.read_text(), BENCH.name, "exec"), namespace)
large = namespace["large"]
TEXT = large(33)
PIECES = ["1", "x1", "w2", "(", ")", "}", "\n", "dim N1 = 4\n", "# c\n", " with gather2", ".T", "all_gather(x3)", "@",
          "op f(x1) -> y { y = x1 * 2 }\n", "M", "tp", ", x2", "zzz", "policy p { via = tma }\n"]


def findings(found):
    """Without near names: those of the whole file are not in an excerpt."""
    return [replace(d, help="", fixes=()) for d in found.report().diagnostics]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_sequence_of_changes(seed, steps):
    draw, text = Random(seed), TEXT
    found = lint_whole("x.chunk", text)
    for _ in range(steps):
        at = draw.randrange(len(text))
        at = draw.choice([at, *(m.start() for m in re.finditer(r"\b", text[at : at + 20]))][:1])
        text = text[:at] + draw.choice(PIECES) + text[at + draw.choice([0, 0, 1, 5]) :]
        found = lint("x.chunk", text, found)
        assert findings(found) == findings(lint_whole("x.chunk", text)), text


@pytest.mark.parametrize("old, new", [
    ("op layer3(", "op layer3(("), ("tensor w3 ", "tensor v3 "), ("via = copy_engine }", "via = copy_engin }"),
    ("# activations 2", "# activations"), ("dim N2 = ", "dim N2 = 2 * "), ("y = gelu(", "y = gelu(h + "),
])  # fmt: skip
def test_a_keystroke_is_checked_in_part_and_undone(old, new):
    before = lint_whole("x.chunk", TEXT)
    changed = TEXT.replace(old, new, 1)
    after = lint("x.chunk", changed, before)
    assert not after.whole and findings(after) == findings(lint_whole("x.chunk", changed))
    again = lint("x.chunk", TEXT, after)
    assert not again.whole and findings(again) == findings(before) == []


def test_only_what_a_change_can_reach_is_checked(monkeypatch):
    texts = []
    parse, *later = lints.STAGES
    noted = lambda checked: texts.append(checked.report.source.text) or parse(checked)  # noqa: E731
    monkeypatch.setattr(lints, "STAGES", (noted, *later))
    before = lint_whole("x.chunk", large(503))
    lint("x.chunk", before.text.replace("dim N50 = ", "dim N50 = 2 * ", 1), before)
    assert len(texts) == 2 and len(texts[1].splitlines()) < 15
    assert {"mesh", "dim", "tensor", "policy", "op"} <= set(texts[1].split())


def test_what_everything_depends_on_is_checked_whole():
    before = lint_whole("x.chunk", TEXT)
    assert lint("x.chunk", TEXT.replace("tp[8]", "tp[4]"), before).whole
    assert lint("x.chunk", TEXT.replace("mesh", "msh"), before).whole


def test_an_error_of_an_earlier_stage_hides_later_ones_and_they_come_back():
    wrong = TEXT.replace("(x2) @", "(x9) @", 1)
    first = lint_whole("x.chunk", wrong)
    assert [d.code for d in first.report().diagnostics] == ["CD240"]
    broken = lint("x.chunk", wrong.replace("dim N4 =", "dim N4 = =", 1), first)
    assert not broken.whole and [d.code for d in broken.report().diagnostics] == ["CD101"]
    assert [d.code for d in lint("x.chunk", wrong, broken).report().diagnostics] == ["CD240"]


def test_offsets_lead_into_an_excerpt_and_out_again():
    parts = segments(TEXT)
    part = excerpt(parts, Relations(parts).needed([len(parts) - 1]))
    assert len(part.text) < len(TEXT) / 2
    for word in ("layer5", "N5", "mesh"):
        inner = part.text.index(word)
        assert TEXT[part.outward(inner) :].startswith(word) and part.inward(part.outward(inner)) == inner
    assert part.inward(TEXT.index("layer1")) is None
