"""The count of tests/gpu/constructions.py: leaks are seen, and what is given back is none. Instances and the GPU are
stand-ins: memory that they give out is counted while it lives."""

import importlib.util
import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

GPU = Path(__file__).parent.parent / "gpu"
TIMES = 200


class Machine:
    """Memory of a rank alone, by kind."""

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
def count(monkeypatch):
    """The program, and its count with instances that are made so."""
    spec = importlib.util.spec_from_file_location("constructions", GPU / "constructions.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    # All goes by reference counts here; a collection of the whole test process takes longer than the rest.
    monkeypatch.setattr(program, "gc", SimpleNamespace(collect=lambda: None, get_objects=list))
    kinds = {"bytes of GPU memory": "symmetric", "bytes of torch's GPU memory": "zeros",
             "bytes of pinned memory": "pinned"}  # fmt: skip
    monkeypatch.setattr(
        program, "of_device", lambda m: {kind: program.ONE[kind] * len(m.given[name]) for kind, name in kinds.items()}
    )

    def many(make=Instance):
        machine = Machine()
        program.many(SimpleNamespace(machine=machine, rank=0, cls=lambda group, **options: make(machine)), TIMES)

    return program, many


def test_instances_that_give_everything_back_leave_nothing_and_planted_leaks_are_seen(count, capsys):
    program, many = count
    many()
    lines = capsys.readouterr().out.splitlines()
    assert "200 constructions" in lines[0] and "'bytes of GPU memory': 0" in lines[0]
    for line, kind in zip(lines[1:], program.PLANTS, strict=True):
        assert "planted, one in each of 100: {" in line and kind in line


@pytest.mark.parametrize("kind", ["file descriptors", "bytes of GPU memory", "bytes of pinned memory"])
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


def test_a_planted_leak_that_nothing_shows_ends_the_count(count, monkeypatch):
    program, many = count
    monkeypatch.setitem(program.PLANTS, "bytes of pinned memory", lambda m: None)
    with pytest.raises(AssertionError, match=r"leaks of each were not seen: \['bytes of pinned memory'\]"):
        many()


def test_the_process_is_counted_as_it_is(count):
    program, _ = count
    before = program.of_process()
    with open(os.devnull):
        assert program.of_process()["file descriptors"] == before["file descriptors"] + 1
    assert program.of_process()["file descriptors"] == before["file descriptors"]
