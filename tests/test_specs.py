"""The specs that we ship: clean, explained, proven for 1 to 8 ranks, and rendered to standalone modules."""

import ast
import contextlib
import functools
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chunkdsl.check.worlds import prove_op, prove_worlds
from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*.chunk"))
ALWAYS = (1, 2, 4, 8)  # every shipped spec runs fused on these
NAMES = [p.stem for p in SPECS]
# Their plans are not for these.
NOT_SERVED = {
    "plan_recursive_doubling": {3, 5, 6, 7}, "plan_two_tier": {5, 6, 7}, "imported_ring": {1, 2, 3, 4, 5, 6, 7},
}  # fmt: skip


def read(name):
    return next(p for p in SPECS if p.stem == name).read_text(encoding="utf-8")


def check_spec(name):
    with contextlib.chdir(ROOT):  # plan files lie beside the specs
        return check_source(Source(f"specs/{name}.chunk", read(name)))


checked = functools.cache(check_spec)


def comments(name):
    own = "\n".join(line.partition("#")[2] for line in read(name).splitlines())
    first = re.search(r"Read (\w+)\.chunk first", own)
    return own + (comments(first[1]) if first else "")


def worlds(name, ranks):
    """So many ranks, in all ways on two axes."""
    if len(checked(name).schedule.mesh.axes) < 2:
        return list(ranks)
    return [(outer, n // outer) for n in ranks for outer in range(1, n + 1) if n % outer == 0]


def always(name):
    """The world sizes that a spec is asked to serve."""
    return [8] if name == "imported_ring" else worlds(name, ALWAYS)


def code(name):
    return "\n".join(line.partition("#")[0] for line in read(name).splitlines())


def test_the_specs_that_users_are_promised():
    assert {"tp_mlp", "tp_mlp_swiglu", "ag_gemm", "gemm_rs", "gemm_ar", "two_tier_gather", "dp_tp_mlp",
            "decode_all_reduce", "attention_projection", "transformer_layer"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_findings(name):
    assert checked(name).report.diagnostics == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_declaration_and_every_choice_is_explained(name):
    for line in read(name).splitlines():
        assert len(line) <= 120
        if re.match(r"(mesh|dim|tensor) ", line):
            assert "#" in line, f"{name}: {line}"
    explained = comments(name)
    for key, value in re.findall(r"(?<!let )\b(\w+) = ([\w ]+(?:\([\w, ]*\))?)\s*[,}]", code(name)):
        assert re.search(rf"\b{key} = ", explained), f"{name}: nothing explains {key}"
        assert re.search(rf"\b{re.escape(value)}", explained), f"{name}: nothing explains {key} = {value}"
    for what in (r"\bh[oe]ld", r"\btravel", r"\boverlap|\bwhile\b"):  # who holds what, what travels, beside what
        assert re.search(what, explained, re.IGNORECASE), f"{name}: {what}"


@pytest.mark.parametrize("name", NAMES)
def test_proven_for_one_to_eight_ranks(name):
    # Large ones with gradients, whose ops other specs have too; and two axes, on which there are many ways.
    ranks = ALWAYS if name in ("transformer_layer", "attention_projection", "dp_tp_mlp") else range(1, 9)
    verdicts = prove_worlds(checked(name).schedule, worlds(name, ranks))
    assert {v.world for v in verdicts if v.refutations} == NOT_SERVED.get(name, set())
    assert {r.code for v in verdicts for r in v.refutations} <= {"CD340", "CD026"}
    assert {v.world for v in verdicts if v.proven} >= set(always(name))


def test_a_spec_whose_buffers_are_reused_too_early_would_be_found():
    schedule = checked("ag_gemm").schedule
    op = schedule.ops[0]
    assert op.closing, "the mutant takes the closing barrier away"
    verdict = prove_op(schedule, replace(op, closing=False), 2)
    assert {r.code for r in verdict.refutations} & {"CD401", "CD402", "CD403", "CD302"}


@pytest.mark.parametrize("name", NAMES)
def test_rendered_modules_are_the_same_each_time_and_stand_alone(name):
    text = render_module(checked(name).schedule, always(name))
    assert text == render_module(check_spec(name).schedule, always(name))
    tree = ast.parse(text)
    roots = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    roots |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {"torch", "triton"} <= roots <= {"torch", "triton", *sys.stdlib_module_names}
    title = "".join(part.capitalize() for part in name.split("_"))
    assert any(isinstance(n, ast.ClassDef) and n.name == title for n in tree.body)
