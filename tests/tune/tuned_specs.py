"""A spec that leaves much open, what may be tried for it, and a clock that knows all times beforehand."""

from functools import cache

from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.tune.evidence import Origin, Result, Tuned
from chunkdsl.tune.space import spaces

SPEC = """mesh tp[4] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 4096]
tensor w : bf16[8192 @ tp, 4096]
tensor v : bf16[4096, 8192 @ tp]
op up(x, w) -> h { h = all_gather(x) @ w.T }
op mlp(x, w, v) -> y {
    h = gelu(all_gather(x) @ w.T) with { route = swizzle, via = copy_engine }
    y = reduce_scatter(h @ v.T, M) with { buffers = 1, chunk = 4 MiB }
}
"""
CALLS = ((("M", 1024),), (("M", 4096),))


@cache
def checked():
    made = check_source(Source("open.chunk", SPEC))
    assert not made.report.failed
    return made


@cache
def found(world=2):
    """Spaces by op."""
    return {s.name: s for s in spaces(checked().program, world, {"up": CALLS, "mlp": CALLS})[1]}


def empty():
    return Tuned(Origin(checked().schedule.digest, "NVIDIA H200", (("chunkdsl", "0.1.0"), ("torch", "2.11.0"))))


class Table:
    """A clock: (microseconds, the library's) of (op, setting, rows) by a function, which may give the same of calls one
    by one after these two; None where it fails."""

    gpu, rehearsal, versions = "NVIDIA H200", False, {"torch": "2.11.0"}

    def __init__(self, times, world=2):
        self.times, self.world, self.jobs, self.gates = times, world, [], []

    def measure(self, job, ahead=()):
        (self.jobs if job.compared else self.gates).append((job.space.name, job.setting, job.sizes))
        results = []
        for sizes in job.sizes:
            t = self.times(job.space.name, dict(((a, b), c) for a, b, c in job.setting), dict(sizes)["M"])
            names = ("us", "library", "eager_us", "eager_library")
            done = {"failed": "no room"} if t is None else {n: (x,) * 3 for n, x in zip(names, t, strict=False)}
            results.append(Result(job.space.name, self.world, sizes, job.setting, compared=job.compared, **done))
        return results
