"""The gate that the cost model chooses: for every world size its own, and open for what was measured as faster."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/bench"))
import model_errors

from chunkdsl.cost import choose_gate
from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.choose import choose
from chunkdsl.cost.constants import margin
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.pipeline import check_source, settle
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

ROOT = Path(__file__).parents[2]
SPEC = """mesh tp[{world}] over nvlink
dim M = {rows}
tensor x : bf16[M @ tp, 4096]
tensor w : bf16[6144 @ tp, 4096]
op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ {policy} }} }}
"""


def checked_of(rows="1..8192", world=4, policy="via = copy_engine, chunk = 192 along M"):
    checked = check_source(Source("f.chunk", SPEC.format(rows=rows, world=world, policy=policy)))
    assert not checked.report.failed
    return checked


def gate_of(checked):
    (found,) = (s for (_, key), s in choose(checked.program, checked.schedule).items() if key == "fuse_from")
    return found


def times(checked, world, rows):
    """(fused, the library's) of a call."""
    made, op = checked.schedule, checked.schedule.ops[0]
    on = machine_for(made, op, {})
    fused = ending(simulate(op, unroll(made, op, world, [{"M": rows}]), on))
    return fused, sum(stage.us for stage in baseline(op, world, {"M": rows}, on))


def test_every_world_size_has_the_gate_of_its_own_predictions():
    checked = checked_of()
    gate = gate_of(checked).value
    settle(checked)
    assert checked.schedule.ops[0].gate == gate
    for world in (2, 4):
        least = gate.at(world).count
        assert least and gate.at(world).dim == "M"
        fused, library = times(checked, world, least // 2)
        assert fused > library * (1 + margin("gate"))
        fused, library = times(checked, world, least)
        assert fused <= library * (1 + margin("gate"))
    assert gate.at(3) == gate.at(2) and gate.at(16) == gate.at(4) and gate.at(1) == FuseFrom(0)
    assert gate.at(2).count < gate.at(4).count


def test_writing_the_gate_down_changes_no_other_choice():
    checked = checked_of(policy="fuse = required")
    free = {key: s for (_, key), s in choose(checked.program, checked.schedule).items()}
    written = checked_of(policy=f"fuse_from = {free.pop('fuse_from').shown}")
    assert {key: s for (_, key), s in choose(written.program, written.schedule).items()} == free


@pytest.mark.parametrize(
    ("rows", "policy", "shown"),
    [
        ("64..256", "via = copy_engine", "never"),
        ("128", "via = copy_engine", "never"),
        ("16384", "route = ring", "always"),
    ],
)
def test_an_op_that_never_or_always_wins(rows, policy, shown):
    found = gate_of(checked_of(rows=rows, policy=policy))
    other = {"never": "along M" if ".." in rows else "always", "always": "never"}[shown]
    assert found.shown == shown and other in found.runner_up and found.margin > 0
    assert ("slower than the library" in found.why) == (shown == "never")


def test_without_the_margin_the_gate_would_be_higher(monkeypatch):
    checked = checked_of()
    safe = gate_of(checked).value.fuse_from
    monkeypatch.setattr(choose_gate, "margin", lambda name: 0.0)
    bold = gate_of(checked).value.fuse_from
    assert bold.count is None or bold.count > safe.count


def test_what_was_measured_as_faster_stays_fused():
    """Of every row of two GPUs in RESULTS.md."""
    rows = model_errors.recorded()["two"]
    gates = {name: gate_of_op(*name.split(".")) for name in dict.fromkeys(r["op"] for r in rows)}
    assert any(gate.count for gate in gates.values())
    for r in rows:
        if r["library_us"] >= r["ours_us"]:
            gate = gates[r["op"]]
            assert gate.count is not None and gate.count <= r["rows"], r


def gate_of_op(stem, name, folder="specs"):
    """That of the op in a spec on two ranks, of calls one by one."""
    text = (ROOT / f"{folder}/{stem}.chunk").read_text(encoding="utf-8").replace("tp[8]", "tp[2]")
    others = [line for line in text.splitlines() if line.startswith("op ") and line.endswith("}") and name not in line]
    text = "\n".join(line for line in text.splitlines() if line not in others)
    checked = check_source(Source(f"{folder}/{stem}.chunk", text))
    settle(checked)
    return next(op.gate.of(False).at(2) for op in checked.schedule.ops if op.name == name)


def test_no_call_one_by_one_that_runs_fused_was_slower_than_the_library_s():
    """They have the gate of calls in graphs: a call that a graph starts takes less of the host than the library's, so
    that it gains outside of graphs at least what it gains inside. Launched anew it does not."""
    rows = model_errors.recorded()["eager"]
    stems = {"scatter": "layers_rs", "gather": "layers_ag", "reduce": "layers_ar"}
    gates = {op: gate_of_op(stems[op.split("_")[0]], op, "tests/bench/specs") for op in {r["op"] for r in rows}}
    fused = [r for r in rows if gates[r["op"]].count is not None and gates[r["op"]].count <= r["rows"]]
    assert {r["op"] for r in fused} >= {"scatter_14336", "gather_4096"}
    assert all(r["library_us"] / r["repeated_us"] >= 0.98 for r in fused)
    assert all(r["repeated_host_us"] < r["library_host_us"] for r in rows)
    assert any(r["library_us"] / r["anew_us"] < 0.98 for r in fused)


def test_the_margin_is_the_largest_error_against_modules():
    """Where the library is predicted to be the faster: how much faster a fused call was then than predicted."""
    worst = model_errors.largest_miss()
    assert worst <= margin("gate") < worst + 0.01


def test_a_plan_of_many_chunks_is_played_out_at_fewer_sizes_or_said_to_be_too_large(monkeypatch):
    checked = checked_of(policy="route = ring, chunk = 32 per shard")
    every = gate_of(checked)
    monkeypatch.setattr(choose_gate, "MOST_TASKS", 2_000)
    fewer = gate_of(checked)
    assert every.shown.endswith("along M") and fewer.shown.endswith(("along M", "never", "always"))
    assert fewer.value.fuse_from.count in {None, 0, 4096, 1024, 256}  # above what was played out
    monkeypatch.setattr(choose_gate, "LARGEST_PLAY", 10)
    none = gate_of(checked)
    assert (none.value, none.shown) == (None, "always") and "too large to be played out" in none.why
