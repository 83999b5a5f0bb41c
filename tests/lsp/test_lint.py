"""Findings after a change are those of the whole text, however little of it was looked at. A first answer says what
it has not looked at."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.editor import lint as lints
from chunkdsl.editor import relint
from chunkdsl.editor.relint import lint
from chunkdsl.editor.segments import Relations, excerpt, segments
from chunkdsl.editor.structure import Clean
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

BENCH = Path(__file__).parent.parent / "bench" / "relint.py"
namespace: dict = {"__name__": "relint"}
exec(compile(BENCH.read_text(), BENCH.name, "exec"), namespace)
large, alike, keystrokes = namespace["large"], namespace["alike"], namespace["keystrokes"]
TEXT, SHARED = large(33), alike(30)
MIXED = """mesh tp[8] over nvlink
dim M = 1..4096
dim H = 1024
tensor x : bf16[M @ tp, H]
tensor w : bf16[2048 @ tp, H]
tensor v : bf16[H, 2048 @ tp]
tensor z : i8[M @ tp, H]
policy gather { chunk = 256 along M, via = copy_engine }
policy bad { via = nothing }
op up(x, w) -> h { h = gelu(all_gather(x) @ w.T) with gather }
op mlp(x, w, v) -> y {
    h = gelu(all_gather(x) @ w.T)
    y = reduce_scatter(h @ v.T, M)
}
op late(x, w) -> h { h = all_gather(x) @ w.T with bad }
op odd(z, w) -> h { h = all_gather(z) @ w.T }
op odder(z, w) -> h { h = all_gather(z) @ w.T }
plan turn(t) : all_gather over tp {
    for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }
}
op around(x, w) -> h { h = gelu(all_gather(x) @ w.T) with { route = turn } }
gradient mlp -> dx, dw, dv
"""
PIECES = ["1", "x1", "w2", "(", ")", "}", "\n", "dim N1 = 4\n", "# c\n", " with gather2", ".T", "all_gather(x3)", "@",
          "op f(x1) -> y { y = x1 * 2 }\n", "M", "tp", ", x2", "zzz", "policy p { via = tma }\n", "z", "i8", "mesh",
          "tensor x : f16[M, M]\n", "with bad", "msh q[2]\n", "chunk 1\n", "\ngradient", "wrong", "dim tensor q"]


def findings(found):
    return found.report().diagnostics


def checked(text):
    return check_source(Source("x.chunk", text)).report.diagnostics


def agree(found, text):
    """A first answer and the findings of `check`: where the first says that it is complete, they are the same, with
    near names and all; where not, every place in it is one of the text."""
    if found.complete:
        assert findings(found) == checked(text), text
    for d in findings(found):
        for span in (d.span, *(x.span for x in d.labels), *(e.span for f in d.fixes for e in f.edits)):
            assert 0 <= span.start <= span.end <= len(text)


def near(text):
    """The same for a text that is opened: one item of each structure, then all with findings."""
    found = lint("x.chunk", text, None, clean=Clean())
    assert found.complete and findings(found) == checked(text), text
    return found


@pytest.mark.parametrize("largest", [8, 40])
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_sequence_of_changes(largest, seed, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relint, "LARGEST_LOOK", largest)
        patch.setattr(relint, "LARGEST_PART", largest // 2)
        draw, clean = Random(seed), Clean()
        text = draw.choice([TEXT, SHARED, MIXED])
        found = lint("x.chunk", text, None, clean=clean)
        for _ in range(steps):
            at = draw.choice([draw.randrange(len(text)), draw.randrange(len(text)), draw.randrange(160)])
            text = text[:at] + draw.choice(PIECES) + text[at + draw.choice([0, 0, 1, 5, 60]) :]
            first = lint("x.chunk", text, found, clean=clean)
            agree(first, text)
            whole = lint("x.chunk", text, None, clean=clean)
            assert whole.complete and findings(whole) == checked(text), text
            found = draw.choice([first, first, whole])  # typed on before the rest was checked


@pytest.mark.parametrize("old, new", [
    ("op layer3(", "op layer3(("), ("tensor w3 ", "tensor v3 "), ("via = copy_engine }", "via = copy_engin }"),
    ("# activations 2", "# activations"), ("dim N2 = ", "dim N2 = 2 * "), ("y = gelu(", "y = gelu(h + "),
    ("mesh tp[8]", "mesh tp[4]"), ("mesh tp", "msh tp"), ("over nvlink", "over nvlink # fast"),
    ("dim K = 4", "dim K = 5"),
])  # fmt: skip
def test_a_keystroke_and_its_undoing_are_checked_completely_at_once(old, new):
    before = near(TEXT)
    changed = TEXT.replace(old, new, 1)
    after = lint("x.chunk", changed, before)
    assert after.complete and findings(after) == checked(changed)
    again = lint("x.chunk", TEXT, after)
    assert again.complete and findings(again) == findings(before) == ()


class Work:
    """The texts that go through the stages."""

    def __init__(self, monkeypatch):
        self.texts = []
        parse, *later = lints.STAGES
        noted = lambda part: self.texts.append(part.report.source.text) or parse(part)  # noqa: E731
        monkeypatch.setattr(lints, "STAGES", (noted, *later))

    def items(self):
        found, self.texts = sum(len(segments(t)) for t in self.texts), []
        return found


def test_only_what_a_change_can_reach_is_checked(monkeypatch):
    work = Work(monkeypatch)
    before = near(large(303))
    work.items()
    lint("x.chunk", before.text.replace("dim N50 = ", "dim N50 = 2 * ", 1), before)
    assert len(work.texts) == 1 and {"mesh", "dim", "tensor", "policy", "op"} <= set(work.texts[0].split())
    assert work.items() < 15


def test_of_a_thousand_items_few_are_checked_whatever_the_keystroke(monkeypatch):
    """What bounds the time of an answer. The times themselves: tests/bench/relint.py."""
    work = Work(monkeypatch)
    opened, clean = {}, Clean()
    for kind, text, old, new in keystrokes(1000):
        if text not in opened:
            opened[text] = lint("x.chunk", text, None, clean=clean)
            assert work.items() < 60, "of the items that differ in names alone one was looked at"
        found = lint("x.chunk", text.replace(old, new, 1), opened[text], clean=clean)
        assert work.items() < 2 * relint.LARGEST_LOOK + relint.LARGEST_PART + 20, kind
        several = ("name" in kind and "renamed" not in kind) or "dtype" in kind
        assert found.complete != several, f"{kind}: hundreds of findings, each to be worded"
        assert not several or len(findings(found)) > 300, "told already, in the words of the nearest"


def test_findings_of_alike_items_are_told_from_one_of_them():
    for kind, text, old, new in keystrokes(60):
        changed = text.replace(old, new, 1)
        first = lint("x.chunk", changed, lint("x.chunk", text, None))
        told, wanted = ([(d.code, d.span, d.message, d.label, d.labels) for d in found]
                        for found in (findings(first), checked(changed)))
        assert told == wanted, kind


def test_lines_that_a_finding_quotes_are_those_of_the_text_as_it_is():
    seed = Path(__file__).parent.parent / "fuzz" / "seeds" / "a-finding-that-quotes-lines"
    text = seed.read_text()
    found = near(text)
    for changed in (text.replace("mesh", "# one more\n\nmesh", 1), text.replace("\n\nplan", "\nplan")):
        after = lint("x.chunk", changed, found, clean=Clean())
        assert after.complete and findings(after) == checked(changed)
        assert findings(after)[0].help != findings(found)[0].help


def test_without_sharing_all_items_would_be_checked(monkeypatch):
    work = Work(monkeypatch)
    number = iter(range(10_000))
    monkeypatch.setattr(relint, "structure_of", lambda texts, folder: next(number))
    lint("x.chunk", TEXT, None, clean=Clean())
    assert work.items() == len(segments(TEXT))


def test_a_check_gives_way_when_the_text_has_changed():
    looks = []

    def watch():
        looks.append(1)
        if len(looks) > 4:
            raise lints.Stale

    with pytest.raises(lints.Stale):
        lint("x.chunk", TEXT, None, watch, Clean())
    assert len(looks) == 5


def test_an_error_of_an_earlier_stage_hides_later_ones_and_they_come_back():
    wrong = TEXT.replace("via = copy_engine", "via = multimem", 1)
    first = near(wrong)
    assert [d.code for d in findings(first)] == ["CD601"]
    broken = lint("x.chunk", wrong.replace("dim N4 =", "dim N4 = =", 1), first)
    assert [d.code for d in findings(broken)] == ["CD101"]
    assert [d.code for d in findings(lint("x.chunk", wrong, broken))] == ["CD601"]


def test_a_syntax_mistake_hides_nothing_of_other_items():
    wrong = TEXT.replace("(x2) @", "(x9) @", 1)
    broken = lint("x.chunk", wrong.replace("dim N4 =", "dim N4 = =", 1), near(wrong))
    assert [d.code for d in findings(broken)] == ["CD240", "CD101"]


def test_offsets_lead_into_an_excerpt_and_out_again():
    parts = segments(TEXT)
    part = excerpt(parts, Relations(parts).needed([len(parts) - 1]))
    assert len(part.text) < len(TEXT) / 2
    for word in ("layer5", "N5", "mesh"):
        inner = part.text.index(word)
        assert TEXT[part.outward(inner) :].startswith(word) and part.inward(part.outward(inner)) == inner
    assert part.inward(TEXT.index("layer1")) is None


def test_what_no_stage_has_looked_at_is_not_taken_for_checked():
    wrong = TEXT.replace("via = copy_engine", "via = multimem", 1)
    opened = near(wrong.replace("dim N4 =", "dim N4 = =", 1))
    assert [d.code for d in findings(opened)] == ["CD101"]
    mended = lint("x.chunk", wrong, opened)
    assert [d.code for d in findings(mended)] == ["CD601"] or not mended.complete
    assert [d.code for d in findings(near(wrong))] == ["CD601"]


def test_second_places_stay_in_the_text_when_what_they_point_at_goes(monkeypatch):
    monkeypatch.setattr(relint, "LARGEST_LOOK", 4)
    monkeypatch.setattr(relint, "LARGEST_PART", 4)
    removed = "mesh tp[8] over nvlink\n" + "".join(f"op f{i}(w) -> y {{ y = all_gather(w) }}\n" for i in range(12))
    before = near(removed + "tensor w : bf16[64, 64]\n")
    assert len(findings(before)) == 12 and all(x.span.start > len(removed) for d in findings(before) for x in d.labels)
    first = lint("x.chunk", removed, before)
    assert len(findings(first)) > 1 and not first.complete
    agree(first, removed)


def test_findings_move_with_what_stands_above_the_first_item():
    wrong = "# a\n" + TEXT.replace("(x2) @", "(x9) @", 1)
    found = near(wrong)
    agree(lint("x.chunk", "# more\n" + wrong, found), "# more\n" + wrong)
    assert lint("x.chunk", "# more\n" + wrong, found).complete


def test_a_file_that_an_item_reads_counts_as_part_of_it(tmp_path):
    kernel = """import triton
import triton.language as tl

@triton.jit
def f(a_ptr, c_ptr, m, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(c_ptr + at, tl.load(a_ptr + at, mask=at < m), mask=at < m)
"""
    (tmp_path / "k.py").write_text(kernel)
    path, clean = str(tmp_path / "x.chunk"), Clean()
    text = TEXT + """kernel k(a) -> c = "k.py" : f {
    a = a_ptr : [m]
    c = c_ptr : [m]
    grid = cdiv(m, B)
    const B = 64
}
"""
    found = lint(path, text, None, clean=clean)
    assert findings(found) == ()
    (tmp_path / "k.py").write_text(kernel.replace("m, B:", "n, B:"))
    found = lint(path, text + "# typed on\n", found, clean=clean)
    assert found.complete and [d.code for d in findings(found)] == ["CD235"]
