"""How little the wrapper has beside the library's calls below a closed gate: calls are counted, as a clock tells more
of the machine."""

import pytest
import torch
from fallback_cost import ROWS, built, counted, idle_group, profile, ways
from host_cost import local_tensors

# Calls of functions, built-in ones too, beyond those by hand: below a gate; of `fallback`; where a call is looked at.
MORE, FALLBACK_MORE, LOOKED_AT_MORE = -3, 24, 48


@pytest.fixture(scope="module")
def fallbacks(tmp_path_factory):
    with idle_group():
        yield built(tmp_path_factory.mktemp("fallbacks"))


def more(found, way):
    return sum(counted(found[way])) - sum(counted(found["by hand"]))


@pytest.mark.parametrize("name", ["gather", "scatter", "reduce", "small"])
def test_below_a_closed_gate_a_call_is_less_than_the_library_s_by_hand(fallbacks, name):
    with torch.no_grad():
        found = ways(fallbacks, name)
        assert more(found, "below the gate") <= MORE and 0 < more(found, "fallback") <= FALLBACK_MORE
        op = getattr(fallbacks, name)
        op.replays = False  # each call is looked at as if it were the first of its sizes
        looked_at = more(found, "below the gate")
        op.replays = True
        assert looked_at > LOOKED_AT_MORE


@pytest.mark.parametrize("rows", [ROWS, ROWS + 1])
@pytest.mark.parametrize("name", ["gather", "scatter", "reduce", "small"])
def test_calls_put_together_once_give_what_the_fallback_does(fallbacks, name, rows, monkeypatch):
    """Those whose rows are cut equally need no `plain`; a sum of rows of all ranks is never cut."""
    op = getattr(fallbacks, name)
    tensors = [torch.randint_like(t, -4, 5) for t in local_tensors(op, {"M": rows}, "cpu")]
    kept, asked, plain = [t.clone() for t in tensors], [], op.plain
    wanted = op.fallback(*tensors, M=rows)
    assert torch.equal(op(*tensors, M=rows), wanted)  # the first call of its sizes
    monkeypatch.setattr(op, "plain", lambda *given: asked.append(1) or plain(*given))
    for given in (tensors, [t.t().contiguous().t() for t in tensors]):
        made = op(*given, M=rows)
        assert torch.equal(made, wanted) and made.is_contiguous() and made is not given[0]
    assert all(map(torch.equal, tensors, kept)) and bool(asked) == (rows % 2 == 1 and name in ("gather", "scatter"))


def test_where_the_time_goes_is_printed_for_both_ways(fallbacks, capsys):
    with torch.no_grad():
        profile(fallbacks, "scatter", 1)
    said = capsys.readouterr().out
    assert "| by hand, profiled |" in said and "| below the gate, profiled |" in said
    assert "new_empty" in said.partition("below the gate, profiled")[2] and "wrapper's scattered sum" in said
