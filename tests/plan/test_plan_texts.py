"""Whatever a plan file holds: a route that keeps its contract, or a refusal; never another exception or a long wait.
And the route's own JSON: every route survives the round trip, and the schema describes what is written."""

import json
import random
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_files import PROGRAMS
from random_routes import path_route
from test_dump import PLAN
from test_importers import keeps_its_promise

from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows
from chunkdsl.plan.dump import dump
from chunkdsl.plan.importers import Kind, PlanFileError, dump_route, import_plan, load_route
from chunkdsl.plan.importers.json_text import read_json
from chunkdsl.plan.importers.levels import find_levels
from chunkdsl.plan.importers.xml_text import read_xml
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace import trace

SCHEMA = json.loads((Path(__file__).parents[2] / "grammars" / "plan.schema.json").read_text(encoding="utf-8"))
VALID = jsonschema.Draft202012Validator(SCHEMA)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3),
)
SMALL = {name: p for name, p in PROGRAMS.items() if len(p[0]) < 7000}
NUMBER = st.integers(-(2**31) + 1, 2**31 - 1)


def routes(world=3):
    rank = st.integers(0, world - 1)
    parts = st.integers(2, 8).flatmap(lambda n: st.builds(Piece, rank, st.integers(0, n - 1), st.just(n)))
    piece = st.builds(Piece, rank) | parts
    chunk = st.none() | st.builds(ChunkBytes, st.integers(1, 2**40)) | st.builds(ChunkCount, st.integers(1, 64))
    chunk |= st.builds(ChunkRows, st.integers(1, 4096), st.text(max_size=3))
    named = st.dictionaries(st.text(max_size=3), NUMBER, max_size=2).map(lambda d: tuple(d.items()))
    step = st.builds(
        Step, st.sampled_from(["send", "fetch"]), piece, piece, rank, st.booleans(),
        st.lists(NUMBER, max_size=3).map(tuple), st.integers(0, 63), st.integers(0, 9999), named,
        st.sampled_from([None, "copy_engine", "tma", "ldst"]), chunk,
    )  # fmt: skip
    steps = st.lists(step, max_size=3).map(tuple)
    contract = st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
    return st.builds(Route, st.text(max_size=5), contract, st.just((world,)), st.tuples(*[steps] * world))


@settings(max_examples=20, deadline=None)
@given(routes())
def test_route_round_trip(route):
    text = dump_route(route)
    assert load_route(text) == route and dump_route(load_route(text)) == text
    assert list(VALID.iter_errors(json.loads(text))) == []


@pytest.mark.parametrize("name", ["hierarchical all-gather", "ring reduce-scatter of two parts", "all-to-all"])
def test_an_imported_route_is_written_and_read_again(name):
    text, contract, world = PROGRAMS[name]
    route = import_plan(text, "r", contract, (world,))
    assert load_route(dump_route(route)) == route
    again = import_plan(dump_route(route), "r", contract, (world,))
    assert keeps_its_promise(again) and trace(again).breaches == ()
    lines = dump_route(route).split("\n")
    assert all(f'"peer": {s.peer}' in lines[s.line - 1] for steps in again.steps for s in steps)  # lines of this file


@settings(max_examples=15, deadline=None)
@given(PLAN)
def test_the_schema_describes_whole_plans_too(plan):
    assert list(VALID.iter_errors(json.loads(dump(plan)))) == []


def test_a_route_over_relays_goes_round():
    route = path_route(lambda low, high: high, "all_to_all", 3)
    assert any(step.target.shard >= 3 for steps in route.steps for step in steps)
    assert load_route(dump_route(route)) == route
    assert trace(import_plan(dump_route(route), "r", "all_to_all", (3,))).breaches == ()


ROUTE = dump_route(import_plan(PROGRAMS["ring all-gather"][0], "r", "all_gather", (4,)))


WRONG = [
    ('"format": 1', '"format": 2', "2"),
    ('"kind": "route"', '"kind": "path"', '"path"'),
    ('"all_gather"', '"gather"', '"gather"'),
    ('"axes": [4]', '"axes": []', "[]"),
    ('"do": "send"', '"do": "put"', '"put"'),
    ('"source": [0]', '"source": [0, 1]', "[0, 1]"),
    ('"source": [0]', '"source": 0', "0"),
    ('"source": [0], ', "", "{"),
    ('"peer": 1', '"peer": true', "true"),
    ('"peer": 1', '"peer": 1.5', "1.5"),
    ('"peer": 1', '"peer": 99999999999999999999', "99999999999999999999"),
    ('"peer": 1', '"peer": 1, "pear": 2', '"pear"'),
    ('"peer": 1', '"peer": 1, "lane": 64', "64"),
    ('"peer": 1', '"peer": 1, "via": "mail"', '"mail"'),
    ('"peer": 1', '"peer": 1, "chunk": {"rows": 8}', '{"rows": 8}'),
    ('"peer": 1', '"peer": 1, "named": {"i": "1"}', '"1"'),
    ('"peer": 1', '"peer": 1, "adding": 1', "1"),
    ('"when": [0]', '"when": [null]', "null"),
]
BEYOND_THE_SCHEMA = [  # what compares two values, and what JSON's own readers let pass
    ('"axes": [4]', '"axes": [2]', "[2]"),
    ('"source": [0]', '"source": [4]', "4"),
    ('"source": [0]', '"source": [0, 2, 2]', "2"),
    ('"peer": 1', '"peer": 1.0', "1.0"),
    ('"peer": 1', '"peer": 1, "peer": 2', '"peer"'),
]


@pytest.mark.parametrize("old, new, meant", WRONG + BEYOND_THE_SCHEMA)
def test_a_wrong_route_is_refused_at_its_place(old, new, meant):
    text = ROUTE.replace(old, new, 1)
    with pytest.raises(PlanFileError) as caught:
        load_route(text)
    span, place = caught.value.span, ROUTE.index(old)
    assert text[span.start : span.end] == meant and place - 30 < span.start <= place + len(new)
    assert bool(list(VALID.iter_errors(json.loads(text)))) == ((old, new, meant) in WRONG)


# ---- texts


def outcome(text, contract, world):
    """None for a refusal, else whether the route keeps its contract."""
    try:
        route = import_plan(text, "r", contract, (world,))
    except PlanFileError as e:
        assert e.message and (e.span is None or 0 <= e.span.start <= e.span.end <= len(text))
        return None
    return bool(trace(route).breaches) or keeps_its_promise(route)


@pytest.mark.parametrize("name", ["ring all-gather", "put all-gather"])
def test_a_text_that_is_cut_off_is_malformed(name):
    text, contract, world = PROGRAMS[name]
    for end in range(0, len(text.rstrip()) - 1, 97):
        with pytest.raises(PlanFileError) as caught:
            import_plan(text[:end], "r", contract, (world,))
        assert caught.value.kind is Kind.MALFORMED


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.randoms(use_true_random=False))
def test_numbers_and_words_that_change_are_refused_or_harmless(name, chance: random.Random):
    """Foreign formats say enough to refuse all that would break the contract: none is left to the proof of routes."""
    text, contract, world = SMALL[name]
    word = r'"(?:[irso]|rcs|rrs|rrc|rrcs|cpy|re|nop|put|get|wait)"'
    places = list(re.finditer(rf'(?<=["\s])-?\d+(?=["\s,}}\]])|{word}', text))
    for _ in range(chance.randint(1, 3)):
        m = chance.choice(places)
        words = ['"i"', '"o"', '"s"', '"r"', '"rcs"', '"rrc"', '"nop"', '"put"', '"copy"', '"wait"']
        new = chance.choice(words if m[0].startswith('"') else ["0", "1", "2", "-1", "3", "99", "9" * 30])
        changed = text[: m.start()] + new + text[m.end() :]
        assert outcome(changed, contract, world) in (None, True)
        try:
            assert trace(import_plan(changed, "r", contract, (world,))).breaches == ()
        except PlanFileError:
            pass


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40) | st.text("<>{}[]\":,/= ag1", max_size=40), st.sampled_from(["", "<", "{", "["]))
def test_any_text_is_refused(text, start):
    assert outcome(start + text, "all_gather", 4) is None


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_json_is_read_as_the_standard_library_reads_it(value):
    def plain(v):
        if isinstance(v.data, dict):
            return {k: plain(x) for k, x in v.data.items()}
        return [plain(x) for x in v.data] if isinstance(v.data, list) else v.data

    for indent in (None, 1):
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        if re.search(r"NaN|Infinity|\d{21}", text):
            continue
        read = read_json(f" {text}\n")
        assert json.dumps(plain(read)) == json.dumps(value) and (read.span.start, read.span.end) == (1, 1 + len(text))


BOMB = '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)
) + ']><algo name="&j;"/>'


@pytest.mark.parametrize("text", [
    BOMB, '<!DOCTYPE algo SYSTEM "file:///etc/passwd"><algo/>', "<a>" * 100_000, "[" * 100_000, '{"a":' * 100_000,
    "<algo>text</algo>", "<algo/><algo/>", '<algo name="1" name="2"/>', "<algo>&x;</algo>", "\ud800", "<\ud800/>", "\0",
])  # fmt: skip
def test_texts_that_hurt_other_readers(text):
    with pytest.raises(PlanFileError) as caught:
        import_plan(text, "r", "all_gather", (4,))
    assert caught.value.kind is Kind.MALFORMED


def test_places_of_xml_count_code_points():
    text = '<?xml version="1.0" encoding="latin-1"?>\r\n<é ö="ä"\n  k = \'3\'><b  c="&lt;"/></é>'
    root = read_xml(text)
    (child,) = root.children
    assert text[root.place("k").start : root.place("k").end] == "'3'" and root.attributes == {"ö": "ä", "k": "3"}
    assert text[child.place("c").start : child.place("c").end] == '"&lt;"' and child.attributes == {"c": "<"}
    assert text[child.span.start : child.span.end] == '<b  c="&lt;"'


def test_levels():
    assert find_levels(3, [(0, 1, 1), (1, 2, 0)]) == ([0, 1, 1], [])
    assert find_levels(3, [(0, 1, 0), (1, 0, 0), (1, 2, 1)]) == ([0, 0, 1], [])
    levels, circle = find_levels(3, [(0, 1, 0), (1, 0, 1), (1, 2, 1)])
    assert levels == [] and sorted(circle) == [0, 1]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 1)), max_size=16))
def test_levels_are_the_least_that_hold(edges):
    levels, circle = find_levels(8, edges)
    least = [0] * 8
    for _ in range(9):
        for a, b, gap in edges:
            least[b] = max(least[b], least[a] + gap)
    possible = all(least[b] >= least[a] + gap for a, b, gap in edges)
    assert (levels == least) if possible else circle
