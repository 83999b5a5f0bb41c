"""Every place of a plan file has a form. What has another type, is unknown, or is missing is refused at its place, also
where a route has no use for it; nothing is left out of a file that is read.
"""

import copy
import json
import re

import pytest
from plan_files import PROGRAMS

from chunkdsl.plan.importers import Kind, PlanFileError, dump_route, import_plan
from chunkdsl.plan.trace import trace

NAMES = ("ring all-gather", "read all-reduce", "put all-gather", "reduce-scatter with a barrier", "all-to-all")
PROGRAM = {name: PROGRAMS[name] for name in NAMES}
OWN = {
    name: (dump_route(import_plan(text, "r", contract, (world,))), contract, world)
    for name, (text, contract, world) in PROGRAM.items() if name in ("ring all-gather", "read all-reduce")
}  # fmt: skip
JSON_FILES = [p for p in PROGRAM.values() if not p[0].startswith("<")] + list(OWN.values())
XML_FILES = [PROGRAMS[n] for n in PROGRAMS if PROGRAMS[n][0].startswith("<") and PROGRAMS[n][2] <= 4]
WRONG = "1.5"  # no format has a number with a fraction anywhere


def kinds_of_places(files):
    """(file, path) of one place of each kind: numbers of lists count as one, and operations by their names."""
    seen = {}
    for file in files:
        whole = json.loads(file[0])

        def walk(value, path, kind, file=file):
            seen.setdefault(kind, (file, path))
            if isinstance(value, dict):
                for key, inner in value.items():
                    walk(inner, (*path, key), (*kind, value.get("name", value.get("do", "")), key))
            elif isinstance(value, list):
                for i, inner in enumerate(value):
                    walk(inner, (*path, i), (*kind, "*"))

        walk(whole, (), ("gpus" in whole,))
    return seen.values()


def at(whole, path):
    for key in path:
        whole = whole[key]
    return whole


def refusal(text, contract, world):
    with pytest.raises(PlanFileError) as caught:
        import_plan(text, "r", contract, (world,))
    e = caught.value
    assert e.message and 0 <= e.span.start <= e.span.end <= len(text)
    return e.kind, text[e.span.start : e.span.end], e.message


def test_a_value_of_another_type_is_refused_where_it_stands():
    places = [p for p in kinds_of_places(JSON_FILES) if p[1]]
    assert len(places) > 60
    for (text, contract, world), path in places:
        whole = json.loads(text)
        at(whole, path[:-1])[path[-1]] = float(WRONG)
        kind, shown, message = refusal(json.dumps(whole), contract, world)
        assert (kind, shown) == (Kind.MALFORMED, WRONG), (path, message)


def test_a_key_that_no_format_knows_is_refused_where_it_stands():
    places = [(f, p) for f, p in kinds_of_places(JSON_FILES) if isinstance(at(json.loads(f[0]), p), dict)]
    assert len(places) > 12
    for (text, contract, world), path in places:
        whole = json.loads(text)
        at(whole, path)["mystery"] = 1
        kind, shown, message = refusal(json.dumps(whole), contract, world)
        assert (kind, shown) == (Kind.MALFORMED, '"mystery"'), (path, message)


def test_a_key_or_item_that_is_missing_is_refused_or_changes_nothing():
    """Items left out are operations: what is left is a route that keeps the contract, or no route."""
    for (text, contract, world), path in kinds_of_places(JSON_FILES):
        if not path:
            continue
        whole = copy.deepcopy(json.loads(text))
        del at(whole, path[:-1])[path[-1]]
        try:
            found = trace(import_plan(json.dumps(whole), "r", contract, (world,)))
        except PlanFileError as e:
            assert e.span is not None, e.message
            continue
        assert not found.breaches or all(b.line for b in found.breaches)


def test_an_attribute_of_another_type_is_refused_where_it_stands():
    """Names may be any text."""
    seen = set()
    for text, contract, world in XML_FILES:
        for m in re.finditer(r'(\w+)="[^"]*"', text):
            tag = re.findall(r"<(\w+)", text[: m.start()])[-1]
            kind = re.search(r'type="(\w+)"', text[text.rindex("<", 0, m.start()) :])
            key = tag, m[1], kind[1] if tag == "step" else ""
            if key in seen or m[1] == "name":
                continue
            seen.add(key)
            found = refusal(f'{text[: m.start()]}{m[1]}="{WRONG}"{text[m.end() :]}', contract, world)
            wanted = Kind.UNSUPPORTED if m[1] in ("proto", "coll", "redop", "type") else Kind.MALFORMED
            assert found[:2] == (wanted, f'"{WRONG}"'), (key, found)
            found = refusal(f'{text[: m.start()]}mystery="1" {text[m.start() :]}', contract, world)
            assert found[:2] == (Kind.MALFORMED, '"1"'), (key, found)
    assert len(seen) > 90


@pytest.mark.parametrize("text, shown, says", [
    ("[]", "[", "a list, and neither a route of chunkdsl"),
    ("[1, {}]", "[", "a list"),
    ('"steps"', '"', "a string"),
    ("null", "n", "null"),
    ("{}", "{", "an object, and neither"),
    ('{"tasks": []}', '"tasks"', "a whole plan, with tiles and signals"),
    ('{"steps": 1}', "{", "'format' is missing"),
    ('{"gpus": []}', "{", "'protocol' is missing"),
])  # fmt: skip
def test_what_is_no_plan_file_is_malformed(text, shown, says):
    """Not unsupported: no format has it."""
    kind, where, message = refusal(text, "all_gather", 4)
    assert kind is Kind.MALFORMED and where == shown and says in message
