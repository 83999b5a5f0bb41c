"""Collectives of the process group: its own functions give what those of torch.distributed do, which are called where a
group has no such functions."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from chunkdsl.runtime.collectives import Collectives


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Of one process, whose functions are those that every backend has."""
    meet = tmp_path_factory.mktemp("group") / "meet"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


class Alone(Collectives):
    world, rank, device = 1, 0, torch.device("cpu")

    def __init__(self, group, backend):
        self.group, self._backend = group, backend

    def _failed(self, what, error):
        return ValueError(f"{what} failed: {error}")


@pytest.fixture(params=["its own functions", "those of torch.distributed", "another backend"])
def machine(request, group, monkeypatch):
    made = Alone(group, "gloo" if request.param == "another backend" else "nccl")
    if request.param == "those of torch.distributed":
        monkeypatch.setattr(made, "direct_way", lambda *given: (None).absent, raising=False)
    if made._backend == "nccl":
        made._look_up_ways()
    return made


def test_every_way_gives_the_same(machine):
    x = torch.arange(12.0).view(4, 3)
    assert torch.equal(machine.gather(x, flat=True), x) and torch.equal(machine.gather(x.t(), flat=True), x.t())
    assert machine._backend == "nccl" or torch.equal(machine.gather(x), x[None])  # gloo's own wants rows
    assert torch.equal(machine.total_shard(x, 4), x) and torch.equal(machine.total(x.t(), own=True), x.t())
    assert machine.total(x, own=True) is x and machine.total(x) is not x and torch.equal(machine.total(x), x)


def test_an_error_names_the_collective_in_every_way(machine):
    with pytest.raises(ValueError, match="a reduction failed: "):
        machine.total(torch.zeros(2, dtype=torch.int16))


@pytest.mark.parametrize("kind", ["gather", "scatter", "total"])
def test_steps_of_calls_that_come_again_are_the_backend_s_own(group, kind):
    machine, x = Alone(group, "nccl"), torch.arange(12.0).view(4, 3)
    step = machine.straight_step(kind, (4, 3))
    made = step(x), step(x.t().contiguous().t())
    assert all(torch.equal(y, x) and y.is_contiguous() and y is not x for y in made)
    passed = []  # ahead of a gather's product comes the gather, behind that of a sum the sum, in its place
    beside = machine.straight_step(kind, (4, 3), lambda t, w: passed.append((t, w)) or t * w if kind == "gather" else t)
    y = beside(x, torch.tensor(2.0))
    assert torch.equal(y, 2 * x if kind == "gather" else x) and (y is x) == (kind == "total")
    assert [t is not x for t, _ in passed] == [True] * (kind == "gather")
    odd = torch.zeros(4, 3, dtype=torch.int16)
    with pytest.raises(ValueError, match="a gather failed: " if kind == "gather" else "a reduction failed: "):
        (machine.straight_step(kind, (5, 5)) if kind != "total" else step)(odd)
    assert Alone(group, "gloo").straight_step(kind, (4, 3)) is None
    kinds, work = [], SimpleNamespace(wait=lambda: kinds.append("waited for"))
    function = lambda *given: kinds.append(all(t.is_contiguous() for t in given[:-1])) or work  # noqa: E731
    backend = SimpleNamespace(_allgather_base=function, _reduce_scatter_base=function, allreduce=lambda *given: work)
    machine.group = SimpleNamespace(_get_backend=lambda device: backend)  # one that finishes later
    machine.straight_step(kind, (4, 3))(x.t().contiguous().t())
    assert kinds == [True, "waited for"][kind == "total" :]
    for machine.group in (SimpleNamespace(), None):  # shows no backend; ranks of one process
        assert machine.straight_step(kind, (4, 3)) is None


def test_what_a_group_does_later_is_waited_for_and_no_group_is_kept(group):
    waited = []
    work = SimpleNamespace(wait=lambda: waited.append(1))
    later = SimpleNamespace(allreduce=lambda tensors, options: options.asyncOp or work)
    Collectives.direct_way(later, "AllreduceOptions", "absent", "allreduce")([torch.zeros(1)])
    assert waited == [1]
    with pytest.raises(AttributeError):
        Collectives.direct_way(later, "AllgatherOptions", "absent", "absent too")
    machine = Alone(group, "nccl")
    machine._look_up_ways()
    machine._leave_group()
    assert not [value for value in vars(machine).values() if value is not None]
