"""Steps of a plan by copy engine, beside steps by programs: what each carries, and that a fault in the wrapper's copies
does not pass."""

import emitted
import pytest
from emitted import GATHER, SMALL, failures, run

from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.constants import machine
from chunkdsl.diagnostics import Report
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.program import lower
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.render import view
from chunkdsl.sim.log import Copy, Write
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse
from chunkdsl.verify import simulate

# Half of every shard goes by copy engine, the other half by programs, in two hops where three ranks allow it.
HALVES = """plan p(t) : all_gather over tp {
    for i in range(1, tp) { send t[rank] part 1 of 2 to (rank + i) mod tp with { via = copy_engine } }
    for i in range(tp - 1) { send t[(rank - i) mod tp] part 0 of 2 to (rank + 1) mod tp }
}
"""
ALL = "plan p(t) : all_gather over tp {{ for i in range(1, tp) {{ send t[rank] to (rank {} i) mod tp{} }} }}\n"
CHUNKS = SMALL.replace("chunk = 10 along M", "chunk = 4 per shard")


def spec(plan, settings, small=SMALL):
    return GATHER.format(t="bf16", p=f"{small}{settings}route = p").replace("tp[2]", "tp[3]") + plan


def test_copy_engines_carry_one_half_and_programs_the_other(monkeypatch):
    logs, compare = [], simulate.compare
    monkeypatch.setattr(simulate, "compare", lambda log, *more: logs.append(log) or compare(log, *more))
    assert failures(run(spec(HALVES, "place = own_sms(1), ", CHUNKS), 3, (19, 0, 37))) == []
    events = [(t.origin, e) for t in logs[0].trails for e in t.events]
    stored = {e.at.owner - o.rank for o, e in events if isinstance(e, Write) and e.at.buffer == "f_x_gathered"}
    copies = [(o, e.destination) for o, e in events if isinstance(e, Copy)]
    copied = {to.owner - o.rank for o, to in copies if to.buffer == "f_x_gathered"}
    assert (stored, copied) == ({0, 1, -2}, {-2, -1, 1, 2})  # 0: the own shard is staged


@pytest.mark.parametrize("plan, settings", [
    (ALL.format("+", " with { via = copy_engine }"), ""),  # parametric: peers are computed
    (ALL.format("-", ""), "via = copy_engine, "),  # as the op says
    (ALL.format("+", " with { via = copy_engine }").replace("{ send", "{ if i < 9 { send").replace(" } }", " } } }"),
     ""),
])  # fmt: skip
def test_copy_engines_carry_all_steps(plan, settings):
    assert failures(run(spec(plan, settings), 3, (19, 0))) == []


def first_part(m, chunk):
    return "each"


def of_the_peer(m, chunk):
    yield from (line.replace("content, part", "_, part") for line in view_hops(m, chunk))
    yield "    content = peer"


def one_too_few(m, chunk):
    yield from (line.replace("_rows:", "_rows[:-1]:") for line in view_hops(m, chunk))


view_hops = view.host_hops


@pytest.mark.parametrize("name, fault", [
    ("host_chunks", first_part), ("host_hops", of_the_peer), ("host_hops", one_too_few),
])  # fmt: skip
def test_a_fault_in_the_copies_is_caught(name, fault, monkeypatch):
    """Without one the first test runs the same."""
    emitted.built.cache_clear()
    monkeypatch.setattr(view, name, fault)
    try:
        assert failures(run(spec(HALVES, "place = own_sms(1), ", CHUNKS), 3, (19,)))
    finally:
        emitted.built.cache_clear()


def test_a_copy_engine_that_passes_on_what_comes_would_not_pass(monkeypatch):
    """Were it not refused (CD344), it would send what is not there yet."""
    monkeypatch.setattr(Routing, "uncopied", lambda self, world: None)
    forwards = HALVES.replace("mod tp }\n}", "mod tp with { via = copy_engine } }\n}")
    assert failures(run(spec(forwards, "", CHUNKS), 3, (19,)))


@pytest.mark.parametrize("plan, settings, code, what", [
    (HALVES, "buffers = 2, ", "CD602", ""),
    (ALL.format("+", " with { via = copy_engine }"), "place = own_sms(1), ", "CD601", "copy engines carry all of its"),
    (ALL.format("+", " with { via = multimem }"), "", "CD601", "via = multimem"),
    (HALVES.replace("send t[(rank - i) mod tp] part 0 of 2 to (rank + 1) mod tp",
                    "fetch t[(rank + i + 1) mod tp] part 0 of 2 from (rank + i + 1) mod tp with fast")
     + "policy fast { via = copy_engine }\n", "", "CD344", "it fetches"),
    (HALVES.replace("mod tp }\n}", "mod tp with { via = copy_engine } }\n}"), "", "CD344", "what another brings"),
])  # fmt: skip
def test_what_copy_engines_cannot_carry_is_refused(plan, settings, code, what):
    (found,) = check_source(Source("p.chunk", spec(plan, settings, CHUNKS))).report.diagnostics
    assert found.code == code and what in found.message


def test_the_library_gathers_once_whoever_carries_the_steps_of_a_plan():
    def collectives(plan):
        made = check_source(Source("p.chunk", spec(plan, "place = own_sms(1), ", CHUNKS))).schedule
        stages = baseline(made.ops[0], 3, {"M": 37}, machine("h200", "nvlink"))
        return [s for s in stages if s.kind == "collective"]

    assert collectives(HALVES) == collectives(HALVES.replace("copy_engine", "ldst")) != []


def test_one_buffer_whatever_was_found_faster():
    """Copy engines have fixed addresses; other steps of the plan would leave the choice."""
    source = Source("p.chunk", spec(HALVES, "place = own_sms(1), ", CHUNKS))
    report = Report(source)
    program = lower(parse(source, report), source, report)
    (gather,) = [v for v in values_of(program.ops[0]) if v.kind == "all_gather"]
    made = schedule_program(program, report, Settlement({(gather, "buffers"): Settled(2, "2", "faster")}))
    assert report.diagnostics == () and (made.ops[0].slots, made.ops[0].closing) == (1, True)
