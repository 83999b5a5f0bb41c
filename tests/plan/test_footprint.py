"""The memory that `plan` shows is what the modules allocate: a machine that counts constructs them."""

import importlib.util

import pytest
import torch

from chunkdsl import pipeline
from chunkdsl.plan.footprint import memory, symmetric_bytes
from chunkdsl.source import Source

HEAD = "mesh tp[2] over nvlink\ndim M = 1..200\ndim H = 80\ndim F = 96\n"
GATHER = HEAD + """tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
op f(x, w) -> y { y = all_gather(x) @ w.T with { tile = 32x32x16, %s } }
"""
SCATTER = HEAD + """tensor x : bf16[M, F @ tp]
tensor w : bf16[H, F @ tp]
op f(x, w) -> y { y = reduce_scatter(x @ w.T, M) with { tile = 32x32x16, %s } }
"""
REDUCE = HEAD + """tensor p : f32[M, H] sum tp
op f(p) -> y { y = all_reduce(p) with { %s } }
"""
LONG = """mesh tp[2] over nvlink
dim M = 1..200
dim H = 4104
tensor p : bf16[M, H] sum tp
tensor g : bf16[H]
op f(p, g) -> y { y = rms_norm(all_reduce(p), g) with { %s } }
"""
SPECS = {
    "words of long rows, one shot": LONG % "validity = word",
    "flags of long rows, one shot": LONG % "validity = flag, buffers = 1",
    "copy engine": GATHER % "via = copy_engine, chunk = 16 along M",
    "ring gather": GATHER % "route = ring, via = ldst, chunk = 3 per shard, buffers = 2",
    "pulled gather": GATHER % "via = tma, side = pull, place = co_located, chunk = 1 KiB",
    "pushed sums": SCATTER % "via = tma, chunk = 7 along M, buffers = 2",
    "carried sums": SCATTER % "via = tma, place = own_sms(4), chunk = 5 per shard",
    "pulled sums": SCATTER % "side = pull",
    "two shots": REDUCE % "chunk = 16 along M",
    "one shot": REDUCE % "algorithm = one_shot, chunk = 16 along M, buffers = 2",
    "one shot, pulled": REDUCE % "algorithm = one_shot, side = pull, buffers = 1",
}


class Counting:
    """One rank of a machine without a device: allocations are noted, launches do nothing."""

    target, sms, device = "sim", 132, torch.device("cpu")

    def __init__(self, world, rank, symmetric):
        self.world, self.rank, self.made, self._symmetric = world, rank, {}, symmetric

    def _note(self, kind, name, shape, dtype):
        tensor = torch.zeros(shape, dtype=dtype)
        self.made[name] = (kind, tensor.numel() * tensor.element_size())
        return tensor

    def symmetric(self, name, shape, dtype):
        tensor = self._note("symmetric", name, shape, dtype)
        return self._symmetric(tensor, (0,) * self.world, torch.zeros(self.world, dtype=torch.int64))

    def zeros(self, name, shape, dtype):
        return self._note("local", name, shape, dtype)

    def pinned(self, name, shape, dtype):
        return torch.zeros(shape, dtype=dtype)

    def empty(self, shape, dtype):
        return torch.empty(shape, dtype=dtype)

    def timeout(self):
        return 1.0

    def vote(self, value):
        return [value] * self.world

    def crowd(self, programs):
        return programs

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


@pytest.fixture
def construct(tmp_path):
    def construct(text, world, bounds):
        checked = pipeline.check_source(Source("made.chunk", text))
        assert not checked.report.diagnostics
        checked.proven = (1, 2, 3, 4)
        pipeline.render(checked)
        (tmp_path / "made.py").write_text(checked.module)
        spec = importlib.util.spec_from_file_location("made", tmp_path / "made.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        machine = Counting(world, world - 1, module.Symmetric)
        assert module.Made(machine=machine, **bounds).f.why_not is None
        return checked.schedule, machine.made

    return construct


@pytest.mark.parametrize("world, bounds", [(2, {}), (4, {"M": 57}), (1, {"M": 1}), (3, {"M": 2})])
@pytest.mark.parametrize("name", SPECS)
def test_it_is_what_a_module_allocates(name, world, bounds, construct):
    if world == 3 and "gather" not in name and "engine" not in name and "shot" not in name:
        world = 4  # a third of F has no TMA stride
    schedule, made = construct(SPECS[name], world, bounds)
    op = schedule.ops[0]
    assert {m.name: (m.kind, m.bytes) for m in memory(schedule, op, world, bounds)} == made
    total = sum(size for kind, size in made.values() if kind == "symmetric")
    assert symmetric_bytes(schedule, op, world, bounds) == total > 0
