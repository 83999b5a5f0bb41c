"""A new name for anything in a spec: the spec checks as before, and the old name gives the old text again."""

from pathlib import Path

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.editor.names import Index
from chunkdsl.editor.segments import segments
from chunkdsl.mend import edited
from chunkdsl.pipeline import Checked, lower, parse
from chunkdsl.source import Source

SPECS = Path(__file__).parent.parent.parent / "specs"
# Names that mean two things at once: a policy, a value and a dim called alike; a saved value; loop variables of two
# blocks; ranks on an axis.
SHADOWS = """\
mesh tp[4] over nvlink
dim M = 1..4096
dim H = 1024
tensor x : bf16[M @ tp, H]
tensor w1 : bf16[2048 @ tp, H]
tensor w2 : bf16[H, 2048 @ tp]
policy gather { chunk = 256 along M }
op mlp(x, w1, w2) -> y {
    gather = all_gather(x) @ w1.T with gather
    u = gelu(gather)
    y = reduce_scatter(u @ w2.T, M)
}
op other(x) -> u { u = relu(x) }
gradient mlp -> dx, dw1, u saves x, u with gather { chunk = 512 along M }
"""
PLANS = """\
mesh node[2] over rdma, gpu[4] over nvlink
dim M = 1..4096
dim K = 8
plan around(t) : all_gather over (node, gpu) {
    for i in range(node * gpu - 1) {
        let s = (node_rank * gpu + gpu_rank - i) mod K
        send t[s] to (rank + 1) mod K
    }
}
plan all(t) : all_gather over (node, gpu) {
    for i in range(1, 2) { send t[rank] to (rank + i) mod 8 }
    for i in range(2, 8) {
        let M = i
        send t[rank] to (rank + M) mod 8
    }
}
"""
KERNEL = (SPECS / "user_gemm.chunk").read_text()
REFUSED = {"m", "n", "k", "BM", "BN", "BK", "GROUP", "num_warps", "num_stages"}  # the kernel's parameters


def codes(path, text):
    """Of the stages in which names are resolved."""
    checked = Checked(Report(Source(path, text)))
    parse(checked)
    if not checked.report.failed:
        lower(checked)
    return [d.code for d in checked.report.diagnostics]


def names(text):
    """A place of each name of a text, by the places that have the same meaning."""
    index = Index(segments(text))
    return {tuple(found): found[0].start for at in range(len(text)) if (found := index.references(at))}


@pytest.mark.parametrize("path, text, count", [
    ("x.chunk", SHADOWS, 16), ("x.chunk", PLANS, 13), (str(SPECS / "user_gemm.chunk"), KERNEL, 25),
    ("tp_mlp.chunk", (SPECS / "tp_mlp.chunk").read_text(), 12),
])  # fmt: skip
def test_every_name_takes_another(path, text, count):
    assert codes(path, text) == []
    found, failed = names(text), set()
    assert len(found) == count
    for spans, at in found.items():
        old = text[spans[0].start : spans[0].end]
        assert all(text[s.start : s.end] == old for s in spans)
        new = edited(text, Index(segments(text)).rename(at, "other_name"))
        if codes(path, new):
            failed.add(old)
        if [text[s[0].start : s[0].end] for s in found].count(old) == 1:  # else the old name is refused
            assert edited(new, Index(segments(new)).rename(new.index("other_name"), old)) == text
    assert failed == (REFUSED if text is KERNEL else set())


def places(text, part, after=0):
    """The lines of the places of the name `after` characters into a part of the text."""
    return [text[: s.start].count("\n") + 1 for s in Index(segments(text)).references(text.index(part) + after)]


@pytest.mark.parametrize("text, part, after, lines", [
    (SHADOWS, "policy gather", 8, [7, 9, 14]), (SHADOWS, "gather = all", 0, [9, 10]),
    (SHADOWS, "u = gelu", 0, [10, 11, 14]), (SHADOWS, "saves x, u", 9, [10, 11, 14]),
    (SHADOWS, "u = relu", 0, [13, 13]),
    (SHADOWS, "dw1, u", 5, [14]), (SHADOWS, "saves x", 6, [4, 8, 9, 13, 13, 14]),
    (PLANS, "mesh node", 5, [1, 4, 5, 6, 10]), (PLANS, "gpu_rank", 1, [1, 4, 5, 6, 6, 10]),
    (PLANS, "for i in range(1", 4, [11, 11]), (PLANS, "for i in range(2", 4, [12, 13]),
    (PLANS, "dim M", 4, [2]), (PLANS, "let M", 4, [13, 14]),
    (KERNEL, "A.stride(0)", 0, [20, 21, 24, 25]), (KERNEL, "sum k", 4, [21, 22, 23]),
    (KERNEL, "m, BM", 0, [21, 23, 30]),
])  # fmt: skip
def test_what_a_place_means(text, part, after, lines):
    assert places(text, part, after) == lines


def test_a_name_in_an_item_that_cannot_be_read_is_not_left_behind():
    with pytest.raises(ValueError, match="`w1` cannot be read"):
        broken = SHADOWS.replace("other(x)", "other(x, w1))")
        Index(segments(broken)).rename(broken.index("w1"), "v")
    broken = SHADOWS.replace("other(x)", "other(x))")
    assert Index(segments(broken)).rename(broken.index("w1"), "v")
