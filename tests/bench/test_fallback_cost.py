"""How little the wrapper adds to the library's calls below a closed gate: calls are counted, as a clock tells more of
the machine."""

import pytest
import torch
from fallback_cost import built, counted, idle_group, profile, ways

MORE = 24  # calls of functions, Python's and built-in ones, that a call may make beyond those by hand


@pytest.fixture(scope="module")
def fallbacks(tmp_path_factory):
    with idle_group():
        yield built(tmp_path_factory.mktemp("fallbacks"))


def more(found, way):
    return sum(counted(found[way])) - sum(counted(found["by hand"]))


@pytest.mark.parametrize("name", ["gather", "scatter", "reduce", "small"])
def test_below_a_closed_gate_a_call_is_hardly_more_than_the_library_s(fallbacks, name):
    with torch.no_grad():
        found = ways(fallbacks, name)
        assert 0 < more(found, "below the gate") <= MORE and 0 < more(found, "fallback") <= MORE
        op = getattr(fallbacks, name)
        op.replays = False  # each call is looked at as if it were the first of its sizes
        looked_at = more(found, "below the gate")
        op.replays = True
        assert looked_at > 2 * MORE


def test_where_the_time_goes_is_printed_for_both_ways(fallbacks, capsys):
    with torch.no_grad():
        profile(fallbacks, "scatter", 1)
    said = capsys.readouterr().out
    assert "| by hand, profiled |" in said and "| below the gate, profiled |" in said
    assert "plain |" in said.partition("below the gate, profiled")[2] and "wrapper's scattered sum" in said
