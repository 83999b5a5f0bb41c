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
    return {s.op.name: s for s in spaces(checked().program, world)[1]}


def empty():
    return Tuned(Origin(checked().schedule.digest, "NVIDIA H200", (("chunkdsl", "0.1.0"), ("torch", "2.11.0"))))


class Table:
    """A clock: (microseconds, the library's) of (op, setting, rows) by a function; None where it fails."""

    gpu, rehearsal, versions = "NVIDIA H200", False, {"torch": "2.11.0"}

    def __init__(self, times, world=2):
        self.times, self.world, self.jobs = times, world, []

    def measure(self, job):
        self.jobs.append((job.space.op.name, job.setting, job.sizes))
        results = []
        for sizes in job.sizes:
            t = self.times(job.space.op.name, dict(((a, b), c) for a, b, c in job.setting), dict(sizes)["M"])
            done = {"failed": "no room"} if t is None else {"us": (t[0],) * 3, "library": (t[1],) * 3}
            results.append(Result(job.space.op.name, self.world, sizes, job.setting, **done))
        return results
