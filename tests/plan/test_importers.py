"""Imported programs become routes that do what their collective promises; broken and unsupported ones are refused at
their place. Routes are carried out here by an executor of a few lines, and by the proof of routes."""

import json
import re

import pytest
from plan_files import FILES, FOLDER, PROGRAMS, Algo, Plan, put_all_gather, ring_all_gather, ring_all_reduce
from random_routes import keeps_contract

from chunkdsl.plan.importers import Kind, PlanFileError, import_plan
from chunkdsl.plan.importers.msccl import TYPES
from chunkdsl.plan.importers.mscclpp import MOVES, OTHERS, SIGNALS, WAITS
from chunkdsl.plan.trace import trace


def carry_out(route):
    """{(rank, shard, part): what lies there}: "rank:shard" of the inputs in it. Steps of one `when` read first."""
    sums, world = route.contract in ("reduce_scatter", "all_reduce"), route.world
    exchange = route.contract == "all_to_all"
    parts = max((s.source.parts for steps in route.steps for s in steps), default=1)
    held = {
        (r, s, p): [f"{r}:{s}"]
        for r in range(world) for s in range(world) if sums or exchange or s == r for p in range(parts)
    }  # fmt: skip
    inputs = dict(held)
    steps = sorted(((s.when, r, s) for r, mine in enumerate(route.steps) for s in mine), key=lambda x: x[:2])
    for when in sorted({w for w, *_ in steps}):
        moved = []
        for _, rank, s in (x for x in steps if x[0] == when):
            source, target = (rank, s.peer) if s.action == "send" else (s.peer, rank)
            from_, to = (source, s.source.shard, s.source.part), (target, s.target.shard, s.target.part)
            moved.append((to, (inputs if exchange else held)[from_], s.adding))
        for to, what, adding in moved:
            held[to] = sorted(held[to] + what) if adding else what
    return held, parts


def promised(route, parts):
    """{(rank, shard, part): what the contract promises}."""
    world, contract = route.world, route.contract
    found = {}
    for r in range(world):
        for s in range(world) if contract != "reduce_scatter" else (r,):
            for p in range(parts):
                whole = [f"{q}:{s}" for q in range(world)]
                found[r, s, p] = {"all_gather": [f"{s}:{s}"], "all_to_all": [f"{s}:{r}"]}.get(contract, whole)
    return found


def keeps_its_promise(route):
    held, parts = carry_out(route)
    return all(held.get(place) == what for place, what in promised(route, parts).items())


def take(text, contract="all_gather", world=4):
    return import_plan(text, "r", contract, (world,))


def refusal(text, contract="all_gather", world=4):
    """(kind, message, the text that is meant, its line)."""
    with pytest.raises(PlanFileError) as caught:
        take(text, contract, world)
    e = caught.value
    meant = text[e.span.start : e.span.end] if e.span else None
    return e.kind, e.message, meant, text.count("\n", 0, e.span.start) + 1 if e.span else 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_becomes_a_route_that_keeps_the_contract(name):
    text, contract, world = PROGRAMS[name]
    route = take(text, contract, world)
    assert (route.name, route.contract, route.axes, route.world) == ("r", contract, (world,), world)
    assert keeps_its_promise(route) and trace(route).breaches == ()


def test_the_programs_hold_every_step_and_operation_that_is_read():
    texts = [text for text, *_ in PROGRAMS.values()]
    used = {t for text in texts for t in re.findall(r'type="(\w+)"', text)}
    assert used == set(TYPES)
    named = {n for text in texts for n in re.findall(r'"name": "(\w+)"', text)}
    assert named >= {"nop", "barrier", *MOVES, *SIGNALS, *WAITS}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_what_their_program_writes(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == FILES[name]


def test_axes_and_lines_and_lanes():
    text = PROGRAMS["hierarchical all-gather"][0]
    route = import_plan(text, "h", "all_gather", (2, 3))
    assert route.axes == (2, 3) and trace(route).breaches == ()
    lines = text.split("\n")
    assert all('type="s"' in lines[s.line - 1] for steps in route.steps for s in steps)
    assert {s.lane for s in route.steps[0]} == {0, 2, 3}  # threadblock 1 only copies
    assert {s.when for s in route.steps[0]} == {(0,), (1,)}  # what came from the other node waits


def test_a_ring_goes_round_and_a_sum_is_added_in_the_order_of_the_file():
    ring = take(ring_all_gather(4))
    assert [(s.source.shard, s.peer, s.when) for s in ring.steps[1]] == [(1, 2, (0,)), (0, 2, (1,)), (3, 2, (2,))]
    pairs = take(*PROGRAMS["all-pairs reduce-scatter"])
    into_0 = sorted((s.when, r) for r, steps in enumerate(pairs.steps) for s in steps if s.peer == 0)
    assert [r for _, r in into_0] == [1, 2, 3] and len({w for w, _ in into_0}) == 3


def test_chunks_that_ranks_do_not_divide_are_cut_finer():
    a = Algo("pair", "allreduce", 2, 1, scratch=1)
    for r in range(2):
        tb = a.block(r, 1 - r, 1 - r)
        if r == 0:
            a.step(r, tb, "s", ("i", 0))
            a.step(r, tb, "r", dst=("i", 0))
        else:
            a.step(r, tb, "rrcs", ("i", 0), ("i", 0))
    route = take(a.text(), "all_reduce", 2)
    assert keeps_its_promise(route) and [s.source.shard for s in route.steps[0]] == [0, 1]


# ---- refused


def edit(text, old, new, count=1):
    assert old in text
    return text.replace(old, new, count)


RING, PUTS = ring_all_gather(4), put_all_gather(4)


@pytest.mark.parametrize("old, new, meant", [
    ('proto="Simple"', 'proto="LL128"', '"LL128"'),
    ('coll="allgather"', 'coll="broadcast"', '"broadcast"'),
    ('redop="nop"', 'redop="max"', '"max"'),
    ('type="rcs"', 'type="ra"', '"ra"'),
])  # fmt: skip
def test_what_msccl_has_and_a_route_has_not(old, new, meant):
    kind, message, shown, line = refusal(edit(RING, old, new))
    assert (kind, shown) == (Kind.UNSUPPORTED, meant) and meant.strip('"') in message
    assert meant in RING.replace(old, new, 1).split("\n")[line - 1]


@pytest.mark.parametrize("old, new, meant", [
    ('"protocol": "Simple"', '"protocol": "LL"', '"LL"'),
    ('"collective": "allgather"', '"collective": "sendrecv"', '"sendrecv"'),
    ('"channel_type": "memory"', '"channel_type": "port"', '"port"'),
    ('"memory"\n', '"switch"\n', '"switch"'),
    *[('"name": "put",', f'"name": "{name}",', f'"{name}"') for name in OTHERS],
    ('"semaphores": []', '"semaphores": [{"init_value": 0}]', '[{"init_value": 0}]'),
    ('"name": "put",', '"name": "put", "tbg_info": {"tb_id": 0, "tbg_size": 2},', '"tbg_info"'),
])  # fmt: skip
def test_what_mscclpp_has_and_a_route_has_not(old, new, meant):
    kind, _, shown, _ = refusal(edit(PUTS, old, new))
    assert (kind, shown) == (Kind.UNSUPPORTED, meant)


@pytest.mark.parametrize("text, contract, world, says", [
    (RING, "reduce_scatter", 4, "the plan is of all_gather, and reduce_scatter is asked for"),
    (RING, "all_gather", 8, "the plan is for 4 ranks, and the mesh declares 8"),
    (PUTS, "all_gather", 2, "the plan is for 4 ranks, and the mesh declares 2"),
])  # fmt: skip
def test_a_plan_for_something_else(text, contract, world, says):
    assert refusal(text, contract, world)[:2] == (Kind.MISFIT, says)


def without(text, pattern, n=0):
    """The text without the nth match of a pattern, steps after it renumbered."""
    m = list(re.finditer(pattern, text))[n]
    rest = text[m.end() :]
    head, end, tail = rest.partition("</tb>")
    head = re.sub(r' s="(\d+)"', lambda s: f' s="{int(s[1]) - 1}"', head)
    return text[: m.start()] + head + end + tail


PAIRS = PROGRAMS["all-pairs all-reduce"][0]
SCATTER = PROGRAMS["all-pairs reduce-scatter"][0]
BARRIER = PROGRAMS["reduce-scatter with a barrier"][0]


def unsync(text, name, n=0):
    """Without the nth operation of that name."""
    plan = json.loads(text)
    found = [(tb, i) for gpu in plan["gpus"] for tb in gpu["threadblocks"] for i, op in enumerate(tb["ops"])
             if op["name"] == name]  # fmt: skip
    tb, i = found[n]
    del tb["ops"][i]
    return json.dumps(plan, indent=1)


@pytest.mark.parametrize("text, contract, says", [
    (without(RING, r' *<step s="0" type="s".*\n'), "all_gather", "which receives 3 times"),
    (without(RING, r' *<step s="3" type="r".*\n'), "all_gather", "which receives 2 times"),
    (edit(RING, 'dstoff="2"', 'dstoff="1"'), "all_gather", "nothing writes chunk 2 of rank 0"),
    (edit(RING, 'dstbuf="o" dstoff="3"', 'dstbuf="i" dstoff="7"'), "all_gather", "which has 1 of them"),
    (edit(RING, 'send="1"', 'send="2"'), "all_gather", "waits for ever"),
    (edit(RING, 'chan="0"', 'chan="1"'), "all_gather", "waits for ever"),
    (edit(RING, 'cnt="1"', 'cnt="2"'), "all_gather", "chunk"),
    (edit(RING, 'i_chunks="1"', 'i_chunks="2"'), "all_gather", "nchunksperloop makes it 1"),
    (edit(PAIRS, 'hasdep="1"', 'hasdep="0"'), "all_reduce", "a deadlock"),
    (edit(PAIRS, 'depid="0" deps="1"', 'depid="-1" deps="-1"'), "all_reduce", "a race"),
    (edit(PAIRS, 'depid="0" deps="1"', 'depid="3" deps="1"'), "all_reduce", "a deadlock"),
    (edit(PAIRS, 'depid="0" deps="1"', 'depid="9" deps="1"'), "all_reduce", "which rank 0 has not"),
    (edit(PAIRS, 'depid="0" deps="1"', 'depid="0" deps="7"'), "all_reduce", "which has 4"),
    (without(PAIRS, r' *<step s="1" type="re".*\n'), "all_reduce", ""),
    (edit(SCATTER, 'type="re" srcbuf="s" srcoff="2"', 'type="re" srcbuf="s" srcoff="1"'), "reduce_scatter", "twice"),
    (without(SCATTER, r' *<step s="0" type="nop".*\n'), "reduce_scatter", "a race"),
    (edit(SCATTER, 'type="re" srcbuf="s"', 'type="cpy" srcbuf="s"'), "reduce_scatter", ""),
])  # fmt: skip
def test_a_broken_algorithm(text, contract, says):
    kind, message, *_ = refusal(text, contract)
    assert kind in (Kind.BROKEN, Kind.UNSUPPORTED) and says in message


@pytest.mark.parametrize("text, contract, says", [
    (unsync(PUTS, "signal"), "all_gather", "a deadlock"),
    (unsync(PUTS, "wait"), "all_gather", "signals once more"),
    (unsync(PUTS, "nop"), "all_gather", "a race"),
    (edit(PUTS, '"signal"', '"rlxsignal"'), "all_gather", "a race"),
    (edit(PUTS, '"wait"', '"rlxwait"'), "all_gather", "a race"),
    (unsync(PUTS, "put"), "all_gather", "nothing writes"),
    (edit(PUTS, '"index": 0,\n', '"index": 1,\n'), "all_gather", ""),
    (edit(PUTS, '"output_chunks": 4', '"output_chunks": 8'), "all_gather", "makes it"),
    (edit(PUTS, '"buffer_id": 0', '"buffer_id": 1'), "all_gather", ""),
    (unsync(BARRIER, "barrier"), "reduce_scatter", "a deadlock"),
    (edit(BARRIER, '"num_threadblocks": 2', '"num_threadblocks": 3'), "reduce_scatter", "barrier 0"),
    (unsync(BARRIER, "wait"), "reduce_scatter", "signals once more"),
])  # fmt: skip
def test_a_broken_execution_plan(text, contract, says):
    kind, message, *_ = refusal(text, contract, len(json.loads(text)["gpus"]))
    assert kind is Kind.BROKEN and says in message


def test_two_sums_of_a_shard_at_once():
    """Everyone sends its addend to everyone, who adds all up: a rank would keep its addend and the sum."""
    a = Algo("one_shot", "allreduce", 3, 3, inplace=0, scratch=9)
    for r in range(3):
        others = [p for p in range(3) if p != r]
        for tb, peer in enumerate(others):
            a.block(r, peer, peer)
            a.step(r, tb, "s", ("i", 0), cnt=3)
            a.step(r, tb, "r", dst=("s", 3 * peer), cnt=3, hasdep=1)
        add = a.block(r)
        a.step(r, add, "cpy", ("i", 0), ("o", 0), cnt=3)
        for tb, peer in enumerate(others):
            a.step(r, add, "re", ("s", 3 * peer), ("o", 0), cnt=3, dep=(tb, 1))
    kind, message, *_ = refusal(a.text(), "all_reduce", 3)
    assert kind is Kind.UNSUPPORTED and "a route keeps one sum of a shard on a rank" in message


def test_a_piece_of_an_exchange_may_go_over_another_rank():
    """Rank 0's piece for rank 2 goes through rank 1's scratch."""
    a = Algo("relay", "alltoall", 3, 3, inplace=0, scratch=1)
    for r in range(3):
        tb = a.block(r)
        a.step(r, tb, "cpy", ("i", r), ("o", r))
        for k in (1, 2):
            to, from_ = (r + k) % 3, (r - k) % 3
            tb = a.block(r, -1 if (r, to) == (0, 2) else to, -1 if (from_, r) == (0, 2) else from_)
            if (r, to) != (0, 2):
                a.step(r, tb, "s", ("i", to))
            if (from_, r) != (0, 2):
                a.step(r, tb, "r", dst=("o", from_))
    for r, send, recv, kind in ((0, 1, -1, "s"), (1, -1, 0, "r"), (1, 2, -1, "s"), (2, -1, 1, "r")):
        tb = a.block(r, send, recv, 1)
        end = {"src": ("i", 2) if r == 0 else ("s", 0)} if kind == "s" else {"dst": ("s", 0) if r == 1 else ("o", 0)}
        a.step(r, tb, kind, **end, hasdep=int((r, kind) == (1, "r")), dep=(3, 0) if (r, kind) == (1, "s") else (-1, -1))
    route = take(a.text(), "all_to_all", 3)
    assert [s.source.shard for s in route.steps[1] if s.source.shard >= 3] == [3]
    assert keeps_contract(route) and trace(route).breaches == ()
    back = a.text().replace('type="s" srcbuf="i" srcoff="2"', 'type="s" srcbuf="i" srcoff="1"', 1)
    kind, message, *_ = refusal(back, "all_to_all", 3)
    assert kind is Kind.UNSUPPORTED and "which is for itself" in message


def test_a_read_of_scratch_that_nothing_wrote():
    p = Plan("early", "allgather", 2, 1, 2, scratch=1)
    for r in range(2):
        p.block(r, [{"name": "copy", "src_buff": [p.near("s", 0)], "dst_buff": [p.near("o", 1 - r)]}])
    kind, message, *_ = refusal(p.text(), "all_gather", 2)
    assert kind is Kind.BROKEN and "scratch chunk 0 of rank 0, which nothing has written" in message


def test_a_small_file_cannot_ask_for_endless_work():
    a = Algo("endless", "allreduce", 2, 4096)
    for r in range(2):
        tb = a.block(r)
        for _ in range(2000):
            a.step(r, tb, "cpy", ("i", 0), ("i", 0), cnt=4096)
    text = a.text()
    kind, message, meant, line = refusal(text, "all_reduce", 2)
    assert kind is Kind.UNSUPPORTED and "chunks are moved" in message and meant in ('"0"', '"4096"') and line < 100
    kind, message, *_ = refusal(edit(RING, 'ngpus="4"', 'ngpus="257"'))
    assert kind is Kind.MALFORMED and "from 2 to 256" in message
    ring = Algo("circle", "allgather", 2, 2)
    for r in range(2):
        tb = ring.block(r, 1 - r, 1 - r)
        for _ in range(3000):
            ring.step(r, tb, "rcs", dst=("o", 1 - r))
    kind, message, *_ = refusal(ring.text(), world=2)
    assert kind is Kind.BROKEN and "a deadlock" in message


def test_large_worlds_are_read_in_seconds():
    for text, contract in ((ring_all_gather(32), "all_gather"), (ring_all_reduce(16, 2), "all_reduce")):
        route = take(text, contract, int(re.search(r'ngpus="(\d+)"', text)[1]))
        assert trace(route).breaches == ()
