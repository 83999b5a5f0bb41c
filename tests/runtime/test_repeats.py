"""Calls that come again with the same tensors: when they are recorded, what is started then, and what is forgotten."""

from contextlib import nullcontext
from types import SimpleNamespace
from weakref import ref

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.runtime.lanes import Lanes
from chunkdsl.runtime.repeats import RecordedLaunches, Repeats
from chunkdsl.source import Source
from chunkdsl.verify.verify import load

ROWS = 8


def outside_of_graphs(machine):
    """Makes a simulated machine one that records; what it records is played step by step. Returns a log of it."""
    begin, log = machine.begin_call, []

    def recorded(play):
        log.append("recorded")
        return lambda: log.append("again") or play()

    machine.begin_call = lambda *given, **named: begin(*given, **named) or True
    machine.recorded, machine.watched = recorded, lambda: False
    return log


def test_a_call_in_the_same_places_is_recorded_and_works_on_what_is_there_then(two_ops, ranks, draw, same_bits):
    drawn = [draw(ROWS, 2, seed=i)[0] for i in range(5)]

    def body(m, machine):
        log, good = outside_of_graphs(machine), []
        x, w = (t.clone() for t in drawn[0]["up"][machine.rank])
        y = torch.empty(ROWS, 24, dtype=torch.bfloat16)
        for parts in drawn:
            for held, fresh in zip((x, w), parts["up"][machine.rank], strict=True):
                held.copy_(fresh)
            m.up(x, w, M=ROWS, out=y)
            machine.synchronize()
            good.append(y.clone())
        wanted = [m.up.exact(*parts["up"][machine.rank], M=ROWS) for parts in drawn]
        other = m.up(x.clone(), w, M=ROWS)  # elsewhere: played, not started as recorded
        m.check()
        assert same_bits(other, wanted[-1]) and log == ["recorded", "again", "again"]
        m.close()
        return list(map(same_bits, good, wanted)), m.up.repeats

    assert ranks(two_ops, body) == [([True] * 5, None)] * 2


HEAD = "mesh tp[2] over nvlink\ndim M = 1..16\n"
OTHERS = {
    "a product of the library": """tensor x : bf16[M @ tp, 32]
tensor w : bf16[48 @ tp, 32]
op up(x, w) -> y { y = all_gather(x) @ w.T with { compute = library, chunk = 2 per shard, fuse_from = always } }
""",
    "a small all-reduce": """tensor x : bf16[M, 32] sum tp
op up(x) -> y { y = all_reduce(x) with { algorithm = one_shot, validity = word, fuse_from = always } }
""",
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_tile_is_recorded_too(what, ranks, same_bits, tmp_path):
    checked = check_source(Source("others.chunk", HEAD + OTHERS[what]))
    made = load(render_module(checked.schedule, (2,)), tmp_path, what.split()[-1].replace("-", "_"))

    def body(m, machine):
        log, good, op = outside_of_graphs(machine), [], m.up
        draw = torch.Generator().manual_seed(machine.rank)
        declared = op.PARAMETERS.values()
        tensors = [torch.zeros(op.local_shape(shape, {"M": ROWS}), dtype=dtype) for dtype, shape in declared]
        y = torch.zeros(op.local_shape(op.RESULTS["y"][1], {"M": ROWS}), dtype=torch.bfloat16)
        for _ in range(5):
            for t in tensors:
                t.copy_(torch.randn(t.shape, generator=draw))
            op(*tensors, M=ROWS, out=y)
            wanted = op.exact(*tensors, M=ROWS)
            m.check()
            good.append(same_bits(y, wanted))
        return good, log

    assert ranks(made.Others, body) == [([True] * 5, ["recorded", "again", "again"])] * 2


class Tape:
    def __init__(self):
        self.played = []

    def play(self, tensors):
        self.played.append([t.data_ptr() for t in tensors])


@pytest.fixture
def machine():
    made = SimpleNamespace(watching=False, idle=0, started=[], refuse=False)

    def recorded(play):
        before = len(made.tape.played)
        play()
        at = made.tape.played.pop()
        assert len(made.tape.played) == before
        return None if made.refuse else lambda: made.started.append(at)

    def synchronize():
        made.idle += 1

    made.recorded, made.synchronize, made.watched, made.tape = recorded, synchronize, lambda: made.watching, Tape()
    return made


def test_a_profiler_of_launches_sees_them_all(machine):
    repeats, x = Repeats(machine), torch.zeros(4)
    for _ in range(4):
        repeats.play(machine.tape, [x])
    assert (len(machine.tape.played), len(machine.started)) == (2, 2)
    machine.watching = True
    repeats.play(machine.tape, [x])
    assert (len(machine.tape.played), len(machine.started)) == (3, 2)


def test_graphs_are_bounded_and_go_only_when_nothing_runs(machine):
    repeats, tensors = Repeats(machine), [torch.zeros(4) for _ in range(3)]
    repeats.MOST, repeats.AFTER, repeats.CLEARINGS = 2, 0, 1
    for x in tensors:
        repeats.play(machine.tape, [x])
    assert (len(repeats.graphs), machine.idle, repeats.cleared) == (1, 1, 1)
    for x in tensors[:2]:
        repeats.play(machine.tape, [x])
    assert (machine.idle, repeats.cleared, len(machine.tape.played)) == (2, 2, 0)
    repeats.play(machine.tape, [torch.zeros(4)])  # places do not come again here: no more is recorded
    assert len(machine.tape.played) == 1
    repeats.play(machine.tape, [tensors[1]])
    assert len(machine.tape.played) == 1, "what is recorded stays"


def test_places_that_never_come_again_are_not_kept(machine):
    repeats, tensors = Repeats(machine), [torch.zeros(4) for _ in range(9)]
    repeats.MOST_SEEN = 4
    for x in tensors:
        repeats.play(machine.tape, [x])
    assert len(repeats.seen) <= 4 and len(machine.tape.played) == 9


def test_two_tapes_do_not_share_a_graph(machine):
    repeats, x = Repeats(machine), torch.zeros(4)
    repeats.AFTER = 0
    repeats.play(machine.tape, [x])
    machine.tape = Tape()
    repeats.play(machine.tape, [x])
    assert len(repeats.graphs) == 2


def test_what_cannot_be_recorded_is_played(machine):
    repeats, x, machine.refuse = Repeats(machine), torch.zeros(4), True
    for _ in range(4):
        repeats.play(machine.tape, [x])
    assert len(machine.tape.played) == 4 and not repeats.graphs


class Recorder(RecordedLaunches):
    """On a GPU that is not there."""

    def __init__(self, log):
        self.device, self._lanes, self.log = torch.device("cuda", 0), {}, log

    def open_lane(self, lane):
        self._lanes[lane] = lane
        self.log.append("lane")


@pytest.fixture
def captured(monkeypatch):
    log = []

    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            log.append(("begin", pool, capture_error_mode))

        def capture_end(self):
            log.append("end")
            if "fails" in log:
                raise RuntimeError("capture was invalidated")

        def replay(self):
            log.append("replay")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "MemPool", lambda: SimpleNamespace(id="pool"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return log


def test_a_recording_is_of_this_thread_s_stream_alone_and_shares_one_pool(captured):
    machine = Recorder(captured)
    for _ in range(2):
        machine.recorded(lambda: captured.append("play"))()
    begin = ("begin", "pool", "thread_local")
    assert captured == ["lane", begin, "play", "end", "replay", begin, "play", "end", "replay"]


def test_the_pool_never_is_without_a_graph(captured):
    """Else torch 2.11 captures no other into it (CachingHostAllocator: use_count > 0), once an instance is gone."""
    machine, made = Recorder(captured), []
    graphs = torch.cuda.CUDAGraph
    torch.cuda.CUDAGraph = lambda: made.append(ref(graph := graphs())) or graph
    try:
        for _ in range(2):
            machine.recorded(lambda: None)
    finally:
        torch.cuda.CUDAGraph = graphs
    assert [one() is not None for one in made] == [True, False]


def test_after_one_that_failed_none_is_tried(captured):
    machine = Recorder(captured)

    def play():
        captured.append("fails")
        raise RuntimeError("no such thing while capturing")

    assert machine.recorded(play) is None and machine.recorded(play) is None
    assert captured.count("fails") == 1 and "no such thing" in machine.unrecorded


class Driver(Lanes):
    """Notes what it would tell the driver."""

    def __init__(self, log, stream):
        self.device, self._last, self._events, self._lanes = torch.device("cuda", 0), None, {"a": 70}, {}
        self._lanes["a"], self.current, self.log = SimpleNamespace(cuda_stream=7), lambda: stream[0], log
        self._record = lambda event, at: log.append(("record", event, at)) or 0
        self._wait = lambda at, event, flags: log.append(("wait", at, event)) or 0
        self._event = lambda: 99


def test_calls_on_different_streams_follow_each_other_and_captured_ones_do_not(monkeypatch):
    log, stream, capturing = [], [1], [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: None)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: None)
    machine = Driver(log, stream)
    for at, inside in ((1, False), (2, False), (2, True), (1, False), (0, False), (0, False), (3, False)):
        stream[0], capturing[0] = at, inside
        assert machine.begin_call("op") is not inside
        machine.end_call()
    said = [kind[0] + str(stream if kind == "record" else at) for kind, at, stream in log]
    assert said == "r1 w2 r2 w1 r1 w0 r0 r0 w3 r3".split() and all(99 in step for step in log)
    log.clear()
    stream[0] = 1
    machine.fork("a")
    machine.join("a")
    assert log == [("record", 70, 1), ("wait", 7, 70), ("record", 70, 7), ("wait", 1, 70)]


def test_an_error_of_the_driver_is_raised():
    machine = Driver([], [1])
    machine._wait = lambda *given: 719
    with pytest.raises(RuntimeError, match="ordering two streams failed with driver error 719"):
        machine.fork("a")
