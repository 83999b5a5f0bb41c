"""Thousands of constructions leave nothing behind; tests/gpu/constructions.py, which counts that on GPUs, sees leaks.
There is no GPU here: memory that stand-ins for it give out is counted while it lives."""

import gc
import importlib.util
import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm

from chunkdsl.runtime.machine import Machine

GPU = Path(__file__).parent.parent / "gpu"
TIMES = 200


class Memory:
    """Memory of a rank alone, by kind."""

    device = torch.device("cpu")
    _keep = ("one",)

    def __init__(self):
        self.given = {kind: weakref.WeakSet() for kind in ("symmetric", "zeros", "pinned")}

    def give(self, kind, shape, dtype):
        tensor = torch.zeros(shape, dtype=dtype)
        self.given[kind].add(tensor)
        return tensor

    def zeros(self, name, shape, dtype):
        return self.give("zeros", shape, dtype)

    def pinned(self, name, shape, dtype):
        return self.give("pinned", shape, dtype)

    def vote(self, value):
        return [value]

    def barrier(self):
        pass


class Instance:
    """An instance of one op; `leak` is called by close."""

    OPS = ("op",)
    leak = staticmethod(lambda m: None)

    def __init__(self, machine):
        self.machine = machine
        words = SimpleNamespace(local=machine.give("symmetric", (4,), torch.int32), addresses=(0,))
        self.op = SimpleNamespace(words=words, state=machine.zeros("state", (4,), torch.int32))

    def close(self):
        self.leak(self)
        self.machine = self.op = None


@pytest.fixture
def program():
    spec = importlib.util.spec_from_file_location("constructions", GPU / "constructions.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# ---- modules as they are


@pytest.fixture(scope="module")
def alone_in_group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    gc.collect()
    gc.freeze()  # collections look at what is made from here on
    yield
    gc.unfreeze()
    gc.collect()
    dist.destroy_process_group()


def test_two_thousand_constructions_leave_nothing(two_ops, alone_in_group, program, monkeypatch, capsys):
    machine = Machine(None, "cpu")
    monkeypatch.setattr(program, "of_device", lambda machine: {})
    program.many(SimpleNamespace(machine=machine, rank=0, cls=two_ops), 2000)
    assert "2000 constructions" in capsys.readouterr().out


class Bare(Machine):
    """One rank alone that has the memory of a GPU."""

    def __init__(self, group, device):
        super().__init__(group, device)
        self.target, self.sms = "sm_80", 4

    def vote(self, value):
        return [value]


def test_hundreds_of_constructions_leave_no_symmetric_memory(two_ops, alone_in_group, program, monkeypatch, capsys):
    """And a module that keeps one buffer of each is found out."""
    living = weakref.WeakSet()

    def empty(*shape, dtype, device):
        tensor = torch.empty(shape, dtype=dtype)
        living.add(tensor)
        return tensor

    def construct(group, **options):
        m = two_ops(machine=Bare(group, "cpu"), **options)
        made.append(len(living))
        return m

    def keep_one_and_close(m, close=two_ops.close):
        kept.append(program.buffer(m))
        close(m)

    def many(times):
        program.many(SimpleNamespace(machine=Bare(None, "cpu"), rank=0, cls=construct), times)

    handle = SimpleNamespace(get_remote_tensor=lambda rank, shape, dtype: torch.empty(shape, dtype=dtype))
    monkeypatch.setattr(symm, "empty", empty)
    monkeypatch.setattr(symm, "rendezvous", lambda tensor, group: handle)
    for operation in two_ops.OPS.values():
        monkeypatch.setattr(operation, "warm_up", lambda op: None)  # nothing is compiled here
    monkeypatch.setattr(program, "of_device", lambda m: {"bytes of GPU memory": 2**21 * len(living)})
    made, kept = [], []
    many(600)
    assert made[0] > 4 and made[:600] == made[:1] * 600
    assert "bytes of GPU memory" in capsys.readouterr().out.splitlines()[3]
    monkeypatch.setattr(two_ops, "close", keep_one_and_close)
    with pytest.raises(AssertionError, match=r"the second half of 200 constructions left .*bytes of GPU memory"):
        many(200)


# ---- the count itself


@pytest.fixture
def count(program, monkeypatch):
    """The program, and its count with instances that are made so."""
    # All goes by reference counts here; a collection of the whole test process takes longer than the rest.
    monkeypatch.setattr(program, "gc", SimpleNamespace(collect=lambda: None, get_objects=list))
    kinds = {"bytes of GPU memory": "symmetric", "bytes of torch's GPU memory": "zeros",
             "blocks of pinned memory": "pinned"}  # fmt: skip
    monkeypatch.setattr(
        program, "of_device", lambda m: {kind: program.ONE[kind] * len(m.given[name]) for kind, name in kinds.items()}
    )

    def many(make=Instance):
        machine = Memory()
        program.many(SimpleNamespace(machine=machine, rank=0, cls=lambda group, **options: make(machine)), TIMES)

    return program, many


def test_instances_that_give_everything_back_leave_nothing_and_planted_leaks_are_seen(count, capsys):
    program, many = count
    many()
    lines = capsys.readouterr().out.splitlines()
    assert "200 constructions" in lines[0] and "'bytes of GPU memory': 0" in lines[0]
    for line, kind in zip(lines[2:], program.PLANTS, strict=True):
        assert "planted, one in each of 50: {" in line and kind in line


@pytest.mark.parametrize("kind", ["file descriptors", "bytes of GPU memory", "blocks of pinned memory"])
def test_a_leak_in_every_tenth_construction_ends_the_count(count, kind):
    program, many = count
    kept, made = [], []

    def leak(m):
        made.append(None)
        if len(made) % 10 == 0:
            kept.append(program.PLANTS[kind](m))

    ten = f"the second half of 200 constructions left .*{kind}.: {10 * program.ONE[kind]}"
    with pytest.raises(AssertionError, match=ten):
        many(type("Leaking", (Instance,), {"leak": staticmethod(leak)}))
    for each in kept:
        getattr(each, "close", lambda: None)()


def test_what_the_first_constructions_leave_once_is_no_leak(count):
    program, many = count
    cache = []

    def leak(m):
        if len(cache) < TIMES // 4:
            cache.append(program.buffer(m))

    many(type("Caching", (Instance,), {"leak": staticmethod(leak)}))
    assert len(cache) == TIMES // 4


@pytest.mark.parametrize(("left", "said"), [(2, "were not seen"), (3, "left .*bytes of torch's GPU memory.: 51200")])
def test_what_torch_keeps_by_itself_is_taken_off_and_no_more(count, monkeypatch, left, said):
    """Each construction leaves blocks, two of which torch would leave anyway."""
    program, many = count
    kept = []

    def leave(m):
        kept.extend(m.machine.zeros("left", (1,), torch.int32) for _ in range(left))

    monkeypatch.setattr(program, "kept_by_torch", lambda machine: 2 * 512)
    monkeypatch.setitem(program.PLANTS, "blocks of pinned memory", lambda m: None)  # in the end something is not seen
    with pytest.raises(AssertionError, match=said):
        many(type("Leaving", (Instance,), {"leak": staticmethod(leave)}))


def test_a_planted_leak_that_nothing_shows_ends_the_count(count, monkeypatch):
    program, many = count
    monkeypatch.setitem(program.PLANTS, "blocks of pinned memory", lambda m: None)
    with pytest.raises(AssertionError, match=r"leaks of each were not seen: \['blocks of pinned memory'\]"):
        many()


def test_the_process_is_counted_as_it_is(count):
    program, _ = count
    before = program.of_process()
    with open(os.devnull):
        assert program.of_process()["file descriptors"] == before["file descriptors"] + 1
    assert program.of_process()["file descriptors"] == before["file descriptors"]
