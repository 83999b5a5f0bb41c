"""Findings after a change are those of the whole text, however little of it was looked at. A first answer says what
it has not looked at."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.editor import lint as lints
from chunkdsl.editor.lint import lint, lint_whole
from chunkdsl.editor.segments import Relations, excerpt, segments
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

BENCH = Path(__file__).parent.parent / "bench" / "relint.py"
namespace: dict = {"__name__": "relint"}
exec(compile(BENCH.read_text(), BENCH.name, "exec"), namespace)
large, alike = namespace["large"], namespace["alike"]
TEXT, SHARED = large(33), alike(30)
PIECES = ["1", "x1", "w2", "(", ")", "}", "\n", "dim N1 = 4\n", "# c\n", " with gather2", ".T", "all_gather(x3)", "@",
          "op f(x1) -> y { y = x1 * 2 }\n", "M", "tp", ", x2", "zzz", "policy p { via = tma }\n"]


def bare(d):
    """Without near names: those of the whole file are not in an excerpt."""
    return replace(d, help="", fixes=())


def findings(found):
    return [bare(d) for d in found.report().diagnostics]


def agree(found, whole):
    """A first answer and the last one of a text: all is alike where the first says it is complete; where not, what
    was found in the items that it looked at, as far as both go."""
    if found.complete:
        assert findings(found) == findings(whole), whole.text
        return
    last = min(found.stage, whole.stage)
    for i in found.fresh:
        seen, wanted = ([(s, bare(d)) for s, d in x.found[i] if s <= last] for x in (found, whole))
        assert seen == wanted, whole.text
    for d in found.report().diagnostics:
        for span in (d.span, *(x.span for x in d.labels), *(e.span for f in d.fixes for e in f.edits)):
            assert 0 <= span.start <= span.end <= len(whole.text)


@pytest.mark.parametrize("largest", [8, 40])
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_sequence_of_changes(largest, seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lints, "LARGEST_PART", largest)
        draw = Random(seed)
        text = draw.choice([TEXT, SHARED])
        found = lint_whole("x.chunk", text)
        for _ in range(steps):
            at = draw.choice([draw.randrange(len(text)), draw.randrange(len(text)), draw.randrange(160)])
            text = text[:at] + draw.choice(PIECES) + text[at + draw.choice([0, 0, 1, 5, 60]) :]
            found, whole = lint("x.chunk", text, found), lint_whole("x.chunk", text)
            agree(found, whole)
            found = draw.choice([found, found, whole])  # typed on before the rest was checked
        assert whole.report().diagnostics == check_source(Source("x.chunk", text)).report.diagnostics


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
    before = lint_whole("x.chunk", large(303))
    lint("x.chunk", before.text.replace("dim N50 = ", "dim N50 = 2 * ", 1), before)
    assert len(texts) == 2 and len(texts[1].splitlines()) < 15
    assert {"mesh", "dim", "tensor", "policy", "op"} <= set(texts[1].split())


@pytest.mark.parametrize("old, new, found_first", [
    ("tp[8]", "tp[4]", 0), ("mesh tp[", "mesh t[", 2), ("msh", "mesh", 0), ("mesh", "msh", 1), ("K = 4", "K = 45", 0),
    ("tensor w :", "tensor ww :", 1), ("{ chunk =", "{ chnk =", 1), ("over nvlink", "over nvlink # fast", 0),
])  # fmt: skip
def test_of_what_everything_depends_on_the_nearest_is_checked_first(monkeypatch, old, new, found_first):
    monkeypatch.setattr(lints, "LARGEST_PART", 8)
    text = SHARED.replace(new, old, 1) if new in SHARED else SHARED
    before = lint_whole("x.chunk", text)
    first = lint("x.chunk", text.replace(old, new, 1), before)
    whole = lint_whole("x.chunk", first.text)
    agree(first, whole)
    assert first.complete == new.endswith("# fast") and len(first.fresh) <= 8
    assert len(findings(first)) == found_first <= len(findings(whole))


@pytest.mark.parametrize("text", [large(253), alike(206)], ids=["own", "shared"])
def test_a_keystroke_is_answered_from_few_items_however_many_there_are(monkeypatch, text):
    """What bounds the time: no more than `LARGEST_PART` items and what the last of them builds on go through the
    stages, whatever has changed. The times themselves: tests/bench/relint.py."""
    before, texts = lint_whole("x.chunk", text), []
    parse, *later = lints.STAGES
    noted = lambda checked: texts.append(checked.report.source.text) or parse(checked)  # noqa: E731
    monkeypatch.setattr(lints, "STAGES", (noted, *later))
    for old, new in (("tp[8]", "tp[4]"), ("mesh tp", "mesh t"), ("dim M", "dim MM"), ("K = 4", "K = "), ("mesh", "msh"),
                     ("w0 : " if "w0 :" in text else "w : ", "v : "), ("swizzle", "ring"), ("y = gelu", "y = gel")):
        assert not lint("x.chunk", text.replace(old, new, 1), before).whole
    assert len(texts) == 8 and max(len(segments(t)) for t in texts) < lints.LARGEST_PART + 10


def test_a_check_gives_way_when_the_text_has_changed():
    looks = []

    def watch():
        looks.append(1)
        if len(looks) > 40:
            raise lints.Stale

    assert lint_whole("x.chunk", TEXT).whole
    with pytest.raises(lints.Stale):
        lint_whole("x.chunk", TEXT, watch)
    assert len(looks) == 41


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


def test_what_no_stage_has_looked_at_is_not_taken_for_checked():
    wrong = TEXT.replace("(x2) @", "(x9) @", 1)
    opened = lint_whole("x.chunk", wrong.replace("dim N4 =", "dim N4 = =", 1))
    assert [d.code for d in opened.report().diagnostics] == ["CD101"]
    mended = lint("x.chunk", wrong, opened)
    assert findings(mended) == [] and not mended.complete and not mended.whole
    assert not lint("x.chunk", wrong + "# more\n", mended).complete
    assert [d.code for d in lint_whole("x.chunk", wrong).report().diagnostics] == ["CD240"]


def test_second_places_stay_in_the_text_when_what_they_point_at_goes(monkeypatch):
    monkeypatch.setattr(lints, "LARGEST_PART", 4)
    removed = "mesh tp[8] over nvlink\n" + "".join(f"op f{i}(w) -> y {{ y = all_gather(w) }}\n" for i in range(12))
    before = lint_whole("x.chunk", removed + "tensor w : bf16[64, 64]\n")
    assert len(findings(before)) == 12 and all(x.span.start > len(removed) for d in findings(before) for x in d.labels)
    first = lint("x.chunk", removed, before)
    assert len(findings(first)) > 1 and not first.complete
    agree(first, lint_whole("x.chunk", removed))
