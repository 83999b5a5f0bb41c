"""`use plan`: the file beside the spec becomes the routing of its name; findings stand at its name in the spec."""

import os
from pathlib import Path

import pytest

from chunkdsl.ir.policy import ChunkRows
from chunkdsl.pipeline import check_source
from chunkdsl.plan.importers import LARGEST_FILE
from chunkdsl.source import Source

FOLDER = Path(__file__).parent.parent / "plan" / "imported"
RING = (FOLDER / "ring_all_gather_4.xml").read_text(encoding="utf-8")
ROUTE = """{"format": 1, "kind": "route", "name": "elsewhere", "contract": "all_gather", "axes": [2], "steps": [
[{"do": "send", "source": [0], "peer": 1, "when": [0]}],
[{"do": "send", "source": [1], "peer": 0, "when": [0]}]]}
"""


def check(folder, use, files=(), mesh="mesh tp[4]"):
    """The stages of `check` on a spec in a folder with such files: name to text or bytes."""
    for name, what in dict(files).items():
        (folder / name).write_bytes(what if isinstance(what, bytes) else what.encode())
    return check_source(Source(str(folder / "spec.chunk"), f"{mesh} over nvlink\n{use}\n"))


def only(checked):
    """The one finding: its code, and its text without the folder."""
    (d,) = checked.report.diagnostics
    source = checked.report.source
    folder = os.path.dirname(source.path) + "/"
    return d.code, f"{d.message}\n{d.help}".replace(folder, ""), source.slice(d.span)


@pytest.mark.parametrize("name, world", [("ring_all_gather_4.xml", 4), ("put_all_gather_3.json", 3)])
def test_a_plan_file_becomes_a_routing(tmp_path, name, world):
    use = f'use plan "{name}" as r : all_gather over tp'
    checked = check(tmp_path, use, {name: (FOLDER / name).read_bytes()}, f"mesh tp[{world}]")
    assert checked.report.diagnostics == ()
    routing = checked.program.plans["r"]
    assert (routing.name, routing.contract, routing.axes, routing.line) == ("r", "all_gather", ("tp",), 2)
    assert routing.breaches(world) == () and len(routing.flows(0, world)) == world - 1
    (breach,) = routing.breaches(world + 1)
    assert breach.message == f"plan r comes from {name}, which is for {world} ranks, not for {world + 1}"


def test_the_path_is_relative_to_the_spec_and_a_byte_order_mark_is_allowed(tmp_path):
    (tmp_path / "plans").mkdir()
    files = {"plans/ring.xml": b"\xef\xbb\xbf" + RING.encode()}
    assert check(tmp_path, 'use plan "plans/ring.xml" as r : all_gather over tp', files).report.diagnostics == ()
    assert only(check(tmp_path, 'use plan "ring.xml" as r : all_gather over tp'))[0] == "CD021"


def test_the_digest_is_of_the_plan_files_too(tmp_path):
    use = 'use plan "r.json" as r : all_gather over tp'
    first = check(tmp_path, use, {"r.json": ROUTE}, "mesh tp[2]").schedule.digest
    assert check(tmp_path, use, {"r.json": ROUTE}, "mesh tp[2]").schedule.digest == first
    assert check(tmp_path, use, {"r.json": ROUTE + "\n"}, "mesh tp[2]").schedule.digest != first


@pytest.mark.parametrize("files, says", [
    ({}, "cannot read the plan file r.json: No such file or directory"),
    ({"r.json": b"\xff\xfe"}, "it is not UTF-8 text: byte 0"),
    ({"r.json": b" " * (LARGEST_FILE + 1)}, "it is larger than 4 MiB"),
])  # fmt: skip
def test_files_that_cannot_be_read(tmp_path, files, says):
    code, text, span = only(check(tmp_path, 'use plan "r.json" as r : all_gather over tp', files))
    assert (code, span) == ("CD021", '"r.json"') and says in text


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "."):
        code, text, _ = only(check(tmp_path, f'use plan "{name}" as r : all_gather over tp'))
        assert code == "CD021" and "it is no file" in text


@pytest.mark.parametrize("old, new, code, says", [
    ('"axes"', '"axis"', "CD022", "r.json:1:79: unknown key 'axis'"),
    ('"format": 1', '"format": 7', "CD023", "r.json:1:12: format 7; this version reads format 1"),
    ('"all_gather"', '"all_to_all"', "CD025", "r.json:1:65: the plan is of all_to_all, and all_gather"),
    ('"peer": 0', '"peer": 1', "CD342", "r.json:3"),
    ('[{"do": "send", "source": [1], "peer": 0, "when": [0]}]', "[]", "CD323", "r.json"),
    ('"source": [0]', '"source": [1]', "CD321", "r.json:2"),
    ('"peer": 0', '"peer": 0, "chunk": {"per_shard": 2}', "CD023",
     "r.json:3:2: a plan whose steps have different chunks"),
])  # fmt: skip
def test_a_wrong_file_is_shown_at_its_place(tmp_path, old, new, code, says):
    text = ROUTE.replace(old, new, 1)
    assert text != ROUTE
    found = only(check(tmp_path, 'use plan "r.json" as r : all_gather over tp', {"r.json": text}, "mesh tp[2]"))
    assert found[0] == code and says in found[1] and found[2] == '"r.json"'


def test_how_steps_travel_is_taken_from_the_file(tmp_path):
    use = 'dim M = 64\nuse plan "r.json" as r : all_gather over tp'
    for chunk, name in (('{"rows": 8, "along": "M"}', "M"), ('{"rows": 8, "along": "Q"}', "Q")):
        text = ROUTE.replace('"when"', f'"via": "tma", "chunk": {chunk}, "when"')
        checked = check(tmp_path, use, {"r.json": text}, "mesh tp[2]")
        if name == "M":
            routing = checked.program.plans["r"]
            assert (routing.vias, routing.chunk) == ({"tma"}, ChunkRows(8, "M"))
        else:
            assert only(checked)[0] == "CD025" and "chunks along Q" in only(checked)[1]


def test_the_line_of_the_file_is_shown_with_carets(tmp_path):
    bad = RING.replace('type="rcs"', 'type="ra"', 1)
    _, text, _ = only(check(tmp_path, 'use plan "r.xml" as r : all_gather over tp', {"r.xml": bad}))
    shown, carets = text.split("\n")[1:3]
    assert shown[carets.index("^") : carets.rindex("^") + 1] == '"ra"'
    assert text.startswith("r.xml:5:24: steps of type 'ra'")


@pytest.mark.parametrize("use, mesh, code", [
    ('use plan "r.xml" as r : gather over tp', "mesh tp[4]", "CD270"),
    ('use plan "r.xml" as r : all_gather over ep', "mesh tp[4]", "CD242"),
    ('use plan "r.xml" as ring : all_gather over tp', "mesh tp[4]", "CD247"),
    ('use plan "r.xml" as r : all_gather over (tp, tp)', "mesh tp[4]", "CD251"),
    ('use plan "r.xml" as r : all_gather over tp', "mesh tp[5]", "CD025"),
    ('use plan "r.xml" as r : reduce_scatter over tp', "mesh tp[4]", "CD025"),
    ('use plan "r.xml" as r : all_gather over tp\ndim r = 3', "mesh tp[4]", "CD246"),
])  # fmt: skip
def test_what_the_item_says_must_fit(tmp_path, use, mesh, code):
    assert only(check(tmp_path, use, {"r.xml": RING}, mesh))[0] == code
