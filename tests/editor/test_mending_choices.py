"""The collectives that completion offers for a value's placement are right where they are offered."""

import pytest

from chunkdsl.editor.complete import completions
from chunkdsl.editor.names import Index
from chunkdsl.editor.segments import segments
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

ONE, TWO = "mesh tp[4] over nvlink\n", "mesh dp[2], tp[4] over nvlink\n"
REST = """\
dim M = 1..4096
dim N = 512
dim H = 1024
dim H2 = 1024
tensor t : bf16{type}
op f(t) -> y {{
    y =\x20
}}
"""


@pytest.mark.parametrize("mesh, type, offered", [
    (ONE, "[M @ tp, N]", ["all_gather(t)", "all_to_all(t, M -> N)"]), (ONE, "[M, N @ tp]", ["all_to_all(t, N -> M)"]),
    (ONE, "[H, H2 @ tp]", []), (ONE, "[H @ tp, H2]", ["all_gather(t)"]), (ONE, "[N @ tp]", []), (ONE, "[M, N]", []),
    (ONE, "[M, H] sum tp", ["all_reduce(t)", "reduce_scatter(t, M)"]), (ONE, "[N] sum tp", []),
    (ONE, "[H, H2] sum tp", ["all_reduce(t)"]), (ONE, "[N, H] sum tp", ["all_reduce(t)", "reduce_scatter(t, N)"]),
    (TWO, "[M @ (dp, tp), N]", ["all_gather(t, over = tp)", "all_gather(t, over = (dp, tp))"]),
    (TWO, "[M @ dp, N @ tp]", ["all_gather(t, over = dp)"]),
    (TWO, "[M @ dp, N] sum tp", ["all_gather(t)", "all_reduce(t)", "reduce_scatter(t, M)"]),
    (TWO, "[M @ tp, N]", ["all_gather(t)"]),
])  # fmt: skip
def test_what_is_offered_checks(mesh, type, offered):
    text = mesh + REST.format(type=type)
    at = text.index("y = \n") + 4
    found = [c.text for c in completions("x.chunk", Index(segments(text)), text, at) if c.first]
    assert found == offered
    for choice in found:
        report = check_source(Source("x.chunk", text[:at] + choice + text[at:])).report
        assert report.diagnostics == (), choice
