"""What becomes of an instance when a rank fails, on simulated ranks and in one process: the table of docs/failures.md.
Processes that really die are in test_failing_processes.py; what needs a GPU in tests/gpu/check_failures.py."""

import gc
import os
import warnings

import pytest
import torch
import torch.distributed as dist

from chunkdsl.sim.world import World

ROWS = 20


# ---- an exception in one rank


def test_an_exception_inside_a_call_reaches_the_peers_at_once_and_names_the_rank(two_ops, draw):
    """No clock moves here: the peers' waits end because rank 1 tells them."""
    parts, _ = draw(ROWS, 3)

    def host(machine):
        m = two_ops(machine=machine)
        if machine.rank == 1:
            m.up.launch = lambda *_: (_ for _ in ()).throw(OSError("no such kernel"))
            with pytest.raises(OSError, match="no such kernel"):
                m.up(*parts["up"][1], M=ROWS)
            with pytest.raises(RuntimeError, match=r"up: a call raised OSError \(no such kernel\)"):
                m.check()
            return "raised"
        m.up(*parts["up"][machine.rank], M=ROWS)
        with pytest.raises(RuntimeError, match=r"up is dead on rank \d: rank 1 raised an exception inside a call"):
            m.check()
        with pytest.raises(RuntimeError, match="rank 1 raised"):
            m.close()
        return "told"

    assert World(3).run(host) == ["told", "raised", "told"]


def test_a_rank_that_cannot_build_its_instance_is_named_on_every_rank(two_ops, monkeypatch):
    real = two_ops.OPS["down"].warm_up

    def warm_up(op):
        if op.rank == 1:
            raise MemoryError("no room")
        real(op)

    monkeypatch.setattr(two_ops.OPS["down"], "warm_up", warm_up)

    def host(machine):
        with pytest.raises(Exception, match="no room") as caught:
            two_ops(machine=machine)
        return type(caught.value), str(caught.value)

    first, second, third = World(3).run(host)
    assert second == (MemoryError, "no room")
    assert first == third and first[0] is RuntimeError
    assert "TwoOps: compiling and loading failed on ranks [1]: {1: 'MemoryError: no room'}" in first[1]


def test_arguments_that_one_rank_refuses_are_told_to_all_where_calls_are_compared(two_ops, ranks, draw):
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        with pytest.raises((ValueError, RuntimeError)) as caught:
            m.up(x[:-1] if machine.rank else x, w, M=ROWS)
        y = m.up(x, w, M=ROWS)  # nothing was launched: the instance is alive
        m.check()
        return type(caught.value), str(caught.value), y.shape[0]

    (kind, said, _), (own, reason, _) = ranks(two_ops, body, check_calls=True)
    assert own is ValueError and "rank 1 passes x of shape (9, 32)" in reason
    assert kind is RuntimeError and said == f"up: rank 1 refuses its arguments: {reason}"


# ---- close, collection, fork


def test_after_close_everything_says_so_and_close_again_is_nothing(two_ops, ranks, draw):
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        layer = m.up.as_module(["w"])
        m.close()
        x, w = parts["up"][machine.rank]
        calls = (m.check, lambda: m.up(x, w), lambda: m.up.buffer("x", x.shape), lambda: layer(x),
                 lambda: m.up.operator(x, w, m.up.number, None))  # fmt: skip
        for call in calls:
            with pytest.raises(RuntimeError, match="TwoOps is closed"):
                call()
        m.close()
        return "closed"

    assert ranks(two_ops, body) == ["closed"] * 2


@pytest.fixture(scope="module")
def alone_in_group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()


def test_an_instance_that_is_collected_gives_everything_back_and_warns(two_ops, alone_in_group):
    m = two_ops()
    machine = m.machine
    machine._keep.append("symmetric memory")
    with pytest.warns(ResourceWarning, match="an instance of TwoOps was not closed"):
        del m
        gc.collect()
    assert machine.group is None and machine._keep == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two_ops().close()
        gc.collect()


def test_nothing_is_freed_while_a_graph_is_captured(two_ops, alone_in_group):
    m = two_ops()
    machine = m.machine
    machine.capturing = lambda: True
    del m
    gc.collect()
    assert machine.group is not None


def test_a_forked_child_is_told_to_make_its_own(two_ops, alone_in_group, draw):
    m, (parts, _) = two_ops(), draw(ROWS, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (lambda: m.up(*parts["up"][0]), lambda: m.up.fallback(*parts["up"][0]), m.check, m.close):
            try:
                call()
                said.append("nothing")
            except RuntimeError as error:
                said.append(str(error))
        os.write(write, "\n".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    assert len(said) == 4 and all("forked from the one that made the instance" in line for line in said), said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert m.up(*parts["up"][0]).shape == (ROWS, 48)  # the parent's is as it was
    m.close()


# ---- groups that overlap


def test_groups_that_overlap_share_nothing(two_ops, draw, same_bits):
    """Ranks 0, 1 and ranks 1, 2 have an instance each, and all three have one: rank 1 is in all of them."""
    two, three = draw(ROWS, 2)[0], draw(ROWS, 3)[0]

    def host(machine):
        r = machine.rank
        everyone = two_ops(machine=machine)
        left = two_ops(machine=machine.among((0, 1), None)) if r < 2 else None
        right = two_ops(machine=machine.among((1, 2), None)) if r > 0 else None
        made = []
        for _ in range(2):
            for m in filter(None, (left, everyone, right)):
                parts = three if m is everyone else two
                made.append((m, m.up(*parts["up"][m.machine.rank], M=ROWS), parts))
        exact = [m.up.exact(*parts["up"][m.machine.rank], M=ROWS) for m, _, parts in made]
        for m in filter(None, (left, right, everyone)):
            m.check()
        good = all(same_bits(y, e) for (_, y, _), e in zip(made, exact, strict=True))
        if left:
            left.close()
        if right:  # another's end is nothing to it
            right.up(*two["up"][right.machine.rank], M=ROWS)
            right.close()
        return good, len(made)

    assert World(3, seed=2).run(host) == [(True, 4), (True, 6), (True, 4)]


def test_a_death_in_one_group_leaves_the_other_alive(two_ops, draw):
    parts = draw(ROWS, 2)[0]["up"]

    def host(machine):
        r = machine.rank
        left = two_ops(machine=machine.among((0, 1), None)) if r < 2 else None
        right = two_ops(machine=machine.among((1, 2), None)) if r > 0 else None
        if r == 0:  # rank 1 never makes this call
            left.up(*parts[0], M=ROWS)
            with pytest.raises(RuntimeError, match=r"up is dead on rank 0: .*; ranks \[1\] have not begun this call"):
                left.check()
            return "dead"
        y = right.up(*parts[right.machine.rank], M=ROWS)
        right.check()
        return tuple(y.shape)

    assert World(3, expire=True).run(host) == ["dead", (ROWS, 24), (ROWS, 24)]


def test_a_kernel_without_a_gpu_says_so():
    """The fallback of an op around a user's kernel launches that kernel untouched."""
    from chunkdsl.runtime.machine import Machine

    machine = Machine.__new__(Machine)
    machine.device = torch.device("cpu")
    with pytest.raises(RuntimeError, match="run on GPUs, or simulated ranks"):
        machine.launch(object(), 1, {}, {}, 4, 1)
