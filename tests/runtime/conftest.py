"""Small modules built from specs, and helpers that run them on simulated ranks."""

from functools import cache

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import class_name, render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim F = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor a : bf16[M, F @ tp]
tensor v : bf16[H, F @ tp]
op up(x, w) -> y {
    y = all_gather(x) @ w.T with { %s, tile = 16x16x16, chunk = 8 along M, via = ldst }
}
op down(a, v) -> z {
    z = reduce_scatter(a @ v.T, M) with { tile = 16x16x16, chunk = 8 along M, via = ldst }
}
"""
WORLDS = (1, 2, 3)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """`built("fuse_from = 8 along M")`: the class of the module whose op `up` has this policy."""
    folder = tmp_path_factory.mktemp("modules")

    @cache
    def build(policy="buffers = 1"):
        checked = check_source(Source("two_ops.chunk", SPEC % policy))
        assert not checked.report.failed, checked.report.diagnostics
        text = render_module(checked.schedule, WORLDS)
        return getattr(load(text, folder, f"module_{build.cache_info().misses}"), class_name("two_ops.chunk"))

    return build


def tensors(rows, world, seed=0):
    """{op: its arguments for each rank}, whole tensors by name."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (torch.randn(shape, generator=g) * 0.5).bfloat16()

    x, w, a, v = draw(rows, 32), draw(48, 32), draw(rows, 48), draw(32, 48)
    up = [(cut(x, 0, world, r), cut(w, 0, world, r)) for r in range(world)]
    down = [(cut(a, 1, world, r), cut(v, 1, world, r)) for r in range(world)]
    return {"up": up, "down": down}, {"x": x, "w": w, "a": a, "v": v}


def on_ranks(module, body, world=2, seed=0, **options):
    """Results by rank of `body(instance, machine)`; `options` are those of the class, but for `simulator`."""
    simulator = options.pop("simulator", {})
    return World(world, seed=seed, **simulator).run(lambda m: body(module(machine=m, **options), m))


def same(a, b):
    return a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.fixture(scope="session")
def two_ops(built):
    return built()


@pytest.fixture(scope="session")
def ranks():
    return on_ranks


@pytest.fixture(scope="session")
def draw():
    return tensors


@pytest.fixture(scope="session")
def same_bits():
    return same
