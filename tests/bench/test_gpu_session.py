"""What a rank does on a GPU, on simulated ranks: graphs and times are played by stand-ins, calls and bits are real."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "gpu"))
import checks
import gpu_session
import modules
import torch
from simulated_session import SimulatedSession


class Played:
    """In place of a CUDA graph: does the calls again, or fewer than were captured."""

    lost = 0

    def __init__(self, call, times, meet=lambda: None):
        self.call, self.times = call, times
        call()  # what cannot be captured says so now
        meet()

    def replay(self):
        for _ in range(self.times - self.lost):
            self.call()


@pytest.fixture
def on_ranks(monkeypatch):
    """`body(session)` of two ranks of a spec's twin."""
    monkeypatch.setattr(checks, "capture", Played)
    monkeypatch.setattr(gpu_session, "capture", Played)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(gpu_session.dist, "barrier", lambda: None)

    def run(stem, op, body):
        def host(run, machine):
            session = gpu_session.GpuSession.__new__(gpu_session.GpuSession)
            session.world, session.rank, session.shared, session.compiles = 2, machine.rank, False, False
            session.instance = lambda *_: run.module
            return body(session)

        return SimulatedSession({}, 0).ranks(stem, op, 2, host)

    return run


def test_replays_of_an_op_that_updates_in_place_are_right_and_a_lost_call_is_not(on_ranks, monkeypatch):
    def replay(session):
        m = session.instance()
        found = []
        for Played.lost in (0, 1):
            found.append(checks.wrong_replays(m.ar_norm, {"T": 1}, m.machine))
        return found

    monkeypatch.setattr(checks, "REPLAYS", 1)
    monkeypatch.setattr(Played, "lost", 0)
    assert on_ranks("decode_all_reduce", "ar_norm", replay) == [[0, 1]] * 2


def test_calls_that_differ_from_exact_are_named_with_their_ranks(on_ranks, monkeypatch):
    """Rank 1's results of more than one row are taken for another's."""
    monkeypatch.setattr(checks, "wrong_replays", lambda *_: 0)
    monkeypatch.setattr(gpu_session, "wrong_replays", lambda *_: 0)
    monkeypatch.setattr(checks, "same", lambda a, b: a[0].shape[0] == 1)
    (found, _) = on_ranks("decode_all_reduce", "ar", lambda s: s.check("decode_all_reduce", "ar", 2))
    assert found["wrong"].startswith("rank 0: sizes [{'T': 9}") and "rank 1" in found["wrong"]


def test_measuring_times_all_that_can_be_captured_and_compares_results(on_ranks, monkeypatch):
    def peers(stem, op, x, dims, torchs):
        def missing():
            raise AttributeError("no such operator")

        called = []

        def eager_only():
            called.append(1)
            if len(called) == 2:
                raise RuntimeError("operation not permitted when stream is capturing")
            return fallback()

        def fallback():
            return op.fallback(*x, **dims)

        return {"library": fallback, "torch one_shot": eager_only, "torch fused": missing}

    monkeypatch.setattr(gpu_session, "peers_of", peers)
    monkeypatch.setattr(gpu_session, "interleaved", lambda works, *_, **__: dict.fromkeys(works, 12.345))
    (found, _) = on_ranks("gemm_rs", "out_proj", lambda s: s.measure("gemm_rs", "out_proj", 2, "M", 8, True))
    assert found["graph"] == {"ours": 12.35, "library": 12.35}
    assert found["eager"] == found["graph"] | {"torch one_shot": 12.35}
    assert found["refused"] == {
        "torch one_shot": "RuntimeError: operation not permitted when stream is capturing",
        "torch fused": "AttributeError: no such operator",
    }
    assert found["apart"]["ours"] == 0.0 and 0 < found["apart"]["library"] < 0.02


def test_a_peer_is_timed_beside_ours_and_tells_what_is_next(on_ranks, monkeypatch):
    told = []
    monkeypatch.setattr(gpu_session, "other_of", lambda stem, peer, x: (lambda: torch.zeros_like(x[2]), ""))
    monkeypatch.setattr(gpu_session, "report", told.append)
    monkeypatch.setattr(gpu_session, "interleaved", lambda works, *_, **__: dict.fromkeys(works, 12.345))
    (found, _) = on_ranks("gemm_rs", "out_proj", lambda s: s.beside("gemm_rs", "out_proj", 2, "M", 8, "kraken fused"))
    times = {"ours": 12.35, "kraken fused": 12.35}
    assert found == {"graph": times, "eager": times, "refused": {}, "apart": {"kraken fused": 1.0}}
    assert [t["at"] for t in told] == [
        "its first call", "ours", "its eager calls", "the capture of its graph", "the first replay of its graph",
        "later replays of its graph",
    ]  # fmt: skip
    assert told[3]["so far"]["eager"] == times and all(0 < t["limit"] <= 25 for t in told), "of rank 0 alone"


@pytest.mark.parametrize("when", ["made", "called"])
def test_a_peer_that_does_not_work_is_refused(on_ranks, monkeypatch, when):
    def broken():
        raise OSError("no")

    made = (None, "OSError: no") if when == "made" else (broken, "")
    monkeypatch.setattr(gpu_session, "other_of", lambda *_: made)
    monkeypatch.setattr(gpu_session, "report", lambda said: None)
    found = on_ranks("gemm_rs", "out_proj", lambda s: s.beside("gemm_rs", "out_proj", 2, "M", 8, "helion"))
    assert found == [{"refused": {"helion": "OSError: no"}}] * 2


def test_ours_must_be_captured(on_ranks):
    def broken():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        gpu_session.timed({"ours": broken}, 1)


@pytest.mark.parametrize(("world", "shared"), [(1, False), (2, True)])
def test_one_rank_and_shared_gpus_are_not_timed(world, shared):
    session = gpu_session.GpuSession.__new__(gpu_session.GpuSession)
    session.world, session.shared = world, shared
    assert "a GPU each" in session.measure("gemm_rs", "out_proj", 2, "M", 64, True)["untimed"]


def test_meshes_of_one_shape_keep_the_names_of_their_axes(monkeypatch):
    monkeypatch.setattr("torch.distributed.device_mesh.init_device_mesh",
                        lambda kind, shape, mesh_dim_names: (shape, mesh_dim_names))  # fmt: skip
    session = gpu_session.GpuSession.__new__(gpu_session.GpuSession)
    session.compiles, session.world, session.mesh = False, 4, {}
    asked = [("dp", "tp"), ("node", "gpu"), ("dp", "tp")]
    assert [session.mesh_of(SimpleNamespace(AXES=axes), (2, 2)) for axes in asked] == [((2, 2), axes) for axes in asked]


class Sized:
    """A module of one op [M, 1000] bf16 sharded by rows, with as much symmetric memory."""

    RANGES, AXES, OPS = {"M": (1, 4096, 1)}, (), {}
    RANKS = SimpleNamespace(bound=lambda axes, world: {})

    def __init__(self, machine, mesh, timeout, **bounds):
        self.machine, self.bounds = machine, bounds

    @classmethod
    def symmetric_bytes(cls, bounds, world):
        return 2000 * bounds["M"]


Sized.OPS["f"] = SimpleNamespace(PARAMETERS={"x": (torch.bfloat16, (("M", True), (1000, False)))}, RESULTS={})


@pytest.mark.parametrize(("free", "rows"), [(1e9, 4096), (30e6, 2048), (8100 / 0.6, 1)])
def test_an_instance_is_made_as_large_as_the_memory_allows(monkeypatch, free, rows):
    session = sized(monkeypatch, free)
    assert session.instance("any", 2).bounds == {"M": rows}
    assert session.instance("any", 2) is session.module
    assert modules.needed_bytes(Sized, {"M": rows}, 2) <= 0.6 * free


def test_a_module_that_is_compiled_is_small_but_of_more_than_one_row(monkeypatch):
    session = sized(monkeypatch, 1e9)
    session.compiles = True
    assert session.instance("any", 2).bounds == {"M": 2048}


def test_the_module_before_is_closed(monkeypatch):
    session, closed = sized(monkeypatch, 1e9), []
    monkeypatch.setattr(Sized, "close", lambda m: closed.append(m), raising=False)
    first, second = session.instance("any", 2), session.instance("any", [1, 2])
    assert closed == [first] and session.module is second and session.key == ("any", (1, 2))


def test_a_module_that_cannot_fit_says_so(monkeypatch):
    with pytest.raises(RuntimeError, match="does not fit"):
        sized(monkeypatch, 100.0).instance("any", 2)


def sized(monkeypatch, free):
    session = gpu_session.GpuSession.__new__(gpu_session.GpuSession)
    session.task, session.key, session.module, session.mesh = {"rows": {"any": 16384}}, None, None, {}
    session.world, session.shared, session.compiles = 2, False, False
    session.machine = lambda: SimpleNamespace(vote=lambda value: [value, value])
    session.mesh_of = lambda cls, shape: None
    monkeypatch.setattr(gpu_session, "load", lambda stem: Sized)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    return session
