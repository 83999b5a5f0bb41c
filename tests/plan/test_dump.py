"""The JSON form of a plan: every plan survives the round trip, nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.plan.dump import PlanFormatError, dump, load
from chunkdsl.plan.plan import Access, Act, Buffer, Lane, Plan, Region, Signal, Task

INT = st.integers(-3, 2**40)
TEXT = st.text("ab_0 ,\"\\\n\0\u00e9\u2603\U0001d11e", max_size=6)
INDICES = st.lists(st.integers(0, 99), max_size=3).map(tuple)
REGION = st.builds(Region, TEXT, INT, INT, INT, INT, INT, INT)
ACCESS = st.builds(Access, st.sampled_from(Act), REGION, st.none() | REGION, TEXT, st.integers(0, 2**100),
                   st.tuples(INT, INT))  # fmt: skip
TASK = st.builds(
    Task, TEXT, INT, TEXT, INT, TEXT, INT, st.lists(ACCESS, max_size=2).map(tuple), INDICES, INDICES, INDICES, INT
)
CALLS = st.lists(st.dictionaries(TEXT, INT, max_size=2).map(lambda d: tuple(d.items())), max_size=3).map(tuple)
PLAN = st.builds(
    Plan, TEXT, INT, CALLS,
    st.lists(st.builds(Buffer, TEXT, TEXT, TEXT, INT, INT, INT), max_size=2).map(tuple),
    st.lists(st.builds(Lane, TEXT, st.booleans(), TEXT, INT), max_size=2).map(tuple),
    st.lists(st.builds(Signal, TEXT, INT, INT, INT, INT, TEXT), max_size=2).map(tuple),
    st.lists(TASK, max_size=3).map(tuple), TEXT,
)  # fmt: skip


def small() -> Plan:
    region = Region("stage", 1, 0, 0, 4, 0, 8)
    effects = (
        Access(Act.PUT, region, None, "y", 1 << 80, (4, 0)),
        Access(Act.COPY, region, Region("x", 0, 0, 0, 4, 0, 8)),
    )
    return Plan(
        "f", 2, ((("M", 8),),), (Buffer("stage", "symmetric", "bf16", 8, 8, 2), Buffer("x", "input", "bf16", 8, 8)),
        (Lane("main", True), Lane("tiles", False, "kernel", 3)), (Signal("arrived", 1, 0, 0, 0, "chunk 0"),),
        (Task("start", 0, "main", 0, "start", 1), Task("tile", 0, "tiles", 0, "tile", 3, effects, (0,), (), (0,), 5)),
        "f.chunk",
    )  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(PLAN)
def test_round_trip(plan):
    text = dump(plan)
    assert load(text) == plan
    assert dump(load(text)) == text


def test_form():
    """Stable and readable: a line for each task, defaults left out, masks as text."""
    lines = dump(small()).splitlines()
    assert lines[0] == '{"format": 1,'
    assert '{"name": "start", "rank": 0, "lane": "main", "call": 0, "kind": "start", "line": 1},' in lines
    assert '"mask": "0x100000000000000000000"' in dump(small())
    lane = json.loads(dump(small()))["lanes"][1]
    assert lane == {"name": "tiles", "serial": False, "launch": "kernel", "programs": 3}


def change(path, value):
    data = json.loads(dump(small()))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "pointer", "says"),
    [
        (["format"], 2, "/format", "format 2 is unknown"),
        (["format"], None, "/format", "no version"),
        (["format"], "1", "/format", "wanted an integer"),
        (["world"], "2", "/world", "wanted an integer, found a string"),
        (["world"], True, "/world", "found a truth value"),
        (["world"], 2.0, "/world", "found a number with a fraction"),
        (["tasks"], {}, "/tasks", "wanted a list, found an object"),
        (["tasks", 1, "accesses", 0, "act"], "swap", "/tasks/1/accesses/0/act", "wanted one of put, copy"),
        (["tasks", 1, "accesses", 0, "region", 3], None, "/tasks/1/accesses/0/region/3", "found null"),
        (["tasks", 1, "accesses", 0, "region"], ["x"], "/tasks/1/accesses/0/region", "wanted [buffer, rank"),
        (["tasks", 1, "accesses", 0, "mask"], 3, "/tasks/1/accesses/0/mask", "wanted a string"),
        (["tasks", 1, "accesses", 0, "mask"], "0x", "/tasks/1/accesses/0/mask", "hexadecimal"),
        (["tasks", 1, "accesses", 0, "mask"], "0x-1", "/tasks/1/accesses/0/mask", "hexadecimal"),
        (["tasks", 1, "accesses", 0, "origin"], [1], "/tasks/1/accesses/0/origin", "[row, column]"),
        (["tasks", 0, "wait"], [], "/tasks/0/wait", "unknown key 'wait'"),
        (["a/b"], 1, "/a~1b", "unknown key"),
        (["lanes", 0, "serial"], 1, "/lanes/0/serial", "wanted true or false"),
        (["calls", 0, "M"], "8", "/calls/0/M", "wanted an integer"),
        (["signals", 0], [], "/signals/0", "wanted an object"),
    ],
)
def test_refused(path, value, pointer, says):
    with pytest.raises(PlanFormatError) as e:
        load(change(path, value))
    assert e.value.pointer == pointer
    assert says in e.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "line 1, column 2"),
        ("[1]", "wanted an object, found a list"),
        ('{"format": 1, "format": 1}', "'format' occurs twice"),
        ('{"format": 1, "op": NaN}', "not JSON: NaN"),
        ('{"format": 1, "op": "f"}', "'spec' is missing"),
        ('{"format": ' + "1" * 5000 + "}", "not a plan"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_not_a_plan(text, says):
    with pytest.raises(PlanFormatError) as e:
        load(text)
    assert says in e.value.message


def test_missing_key_of_a_row():
    data = json.loads(dump(small()))
    del data["buffers"][0]["rows"]
    with pytest.raises(PlanFormatError) as e:
        load(json.dumps(data))
    assert (e.value.pointer, e.value.message) == ("/buffers/0", "'rows' is missing")
