"""Ranks that fail, on GPUs: every row of docs/failures.md that needs one. Each scene is a set of processes of its own.

    chunkdsl build specs/ag_gemm.chunk -o build/gpu
    CHUNKDSL_GPU_BUILD=build/gpu python tests/gpu/check_failures.py [--world 2] [--scenes skip,kill] [--times 2000]

Needs a GPU for each rank. Prints a line for each scene; exit code 1 if one is not as
documented or takes longer than its bound, 2 if it could not run.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.distributed as dist
from check_processes import start
from constructions import many
from local_ranks import refuse_multicast
from modules import inputs, load, same

TIMEOUT, ROWS = 5.0, 512
STEM, OP = "ag_gemm", "qkv"


class Rank:
    """One process of a scene."""

    def __init__(self, rank: int, world: int, port: int):
        self.machine, self.rank, self.world = start(rank, world, port), rank, world
        self.cls = load(STEM)

    def instance(self, group=None, **options):
        return self.cls(group, timeout=TIMEOUT, M=2048, **options)

    def call(self, m, rows=ROWS, **changes):
        op = getattr(m, OP)
        x = inputs(op, {"M": rows}, self.rank, 3)
        return op(*changes.get("x", x), M=rows)

    def told(self, call, wanted: str, bound: float = TIMEOUT + 10) -> None:
        begin = time.monotonic()
        try:
            call()
        except (RuntimeError, ValueError) as error:
            said, seconds = str(error), time.monotonic() - begin
            assert wanted in said, f"rank {self.rank}: {said}"
            assert seconds < bound, f"rank {self.rank} was told after {seconds:.1f} s"
            return
        raise AssertionError(f"rank {self.rank}: nothing was raised, wanted {wanted!r}")

    def close_dead(self, m) -> None:
        self.told(m.close, "is dead")
        self.told(lambda: self.call(m), "is closed")


def skip(r: Rank) -> None:
    """Rank 1 skips a call; the others name it."""
    m = r.instance()
    r.call(m)
    torch.cuda.synchronize()
    if r.rank != 1:
        r.call(m)
        r.told(m.check, "ranks [1] have not begun this call")
        r.told(lambda: r.call(m), "is dead", 10)
        r.close_dead(m)
    else:
        time.sleep(TIMEOUT + 5)


def raises(r: Rank) -> None:
    """Rank 1 raises among the launches of a call; the others are told before any wait runs out."""
    m = r.instance()
    r.call(m)
    torch.cuda.synchronize()
    if r.rank == 1:

        def launch(*_):
            raise OSError("no such kernel")

        getattr(m, OP).launch = launch
        try:
            r.call(m, 2 * ROWS)  # sizes that were not called before: they are launched one by one
        except OSError:
            r.told(m.check, "a call raised OSError")
        torch.cuda.synchronize()
        time.sleep(TIMEOUT)
        return
    r.call(m, 2 * ROWS)
    r.told(m.check, "rank 1 raised an exception inside a call", TIMEOUT - 1)
    r.close_dead(m)


def kill(r: Rank) -> None:
    """Rank 1 is killed while its kernels wait; the others are told."""
    m = r.instance()
    r.call(m)
    torch.cuda.synchronize()
    dist.barrier()
    if r.rank == 1:
        r.call(m)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1.5)
    r.call(m)
    # What rank 1 had sent may have been enough for this call; the next one has no chance.
    try:
        m.check()
        r.call(m)
    except RuntimeError:
        pass
    r.told(m.check, "is dead")
    r.close_dead(m)


def sizes(r: Rank) -> None:
    """Other sizes, with check_calls: refused everywhere, nothing is dead."""
    m = r.instance(check_calls=True)
    r.told(lambda: r.call(m, 512 + 256 * (r.rank == 1)), "ranks [1] call with other sizes than rank 0")
    x = inputs(getattr(m, OP), {"M": ROWS}, r.rank, 3)
    r.told(lambda: r.call(m, x=[t.float() for t in x] if r.rank == 1 else x), "is torch.float32, declared as")
    y = r.call(m)
    m.check()
    assert same(y, getattr(m, OP).exact(*x, M=ROWS))
    m.close()


def closed(r: Rank) -> None:
    """In a forked child, after close, and collected without close."""
    m = r.instance()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            getattr(m, OP)(torch.empty(1), torch.empty(1))
        except RuntimeError as error:
            code = 0 if "forked" in str(error) else 2
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0, "the forked child was not told"
    r.call(m)
    m.close()
    r.told(lambda: r.call(m), "is closed", 1)
    m.close()
    unclosed(r)


def unclosed(r: Rank) -> None:
    """An instance that is collected without close."""
    free = torch.cuda.mem_get_info()[0]
    m = r.instance()
    r.call(m)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del m
        gc.collect()
    assert any(issubclass(w.category, ResourceWarning) for w in seen)
    dist.barrier()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - 2**28, "a collected instance keeps its memory"


def overlap(r: Rank) -> None:
    """Groups that overlap: every pair of neighbours has an instance, and all have one."""
    pairs = [(i, i + 1) for i in range(r.world - 1)]
    groups = [dist.new_group(list(p)) for p in pairs]
    mine = [r.instance()] + [r.instance(g) for g, p in zip(groups, pairs, strict=True) if r.rank in p]
    for _ in range(5):
        for m in mine:
            x = inputs(getattr(m, OP), {"M": ROWS}, m.machine.rank, 3)
            y = getattr(m, OP)(*x, M=ROWS)
            assert same(y, getattr(m, OP).exact(*x, M=ROWS))
    for m in mine:
        m.check()
        m.close()


def ended(ranks: list, wanted: list[int], bound: float = 300.0, grace: float = 30.0) -> list:
    """Exit codes of processes. After `bound` seconds, or `grace` after one has ended otherwise than wanted, those that
    still run are killed: they "hang"."""
    end = time.monotonic() + bound
    while any(p.poll() is None for p in ranks) and time.monotonic() < end:
        if any(p.poll() not in (None, code) for p, code in zip(ranks, wanted, strict=True)):
            end, grace = min(end, time.monotonic() + grace), bound
        time.sleep(0.05)
    codes = ["hangs" if p.poll() is None else p.poll() for p in ranks]
    for p in ranks:
        p.kill()
    return codes


SCENES = {"skip": skip, "raises": raises, "kill": kill, "sizes": sizes, "closed": closed, "overlap": overlap}


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--scenes", default=",".join([*SCENES, "many"]))
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--port", type=int, default=29581)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        r = Rank(args.rank, args.world, args.port)
        many(r, args.times) if args.scenes == "many" else SCENES[args.scenes](r)
        sys.stdout.flush()
        os._exit(0)  # after a failure there is nobody to leave the group with
    if torch.cuda.device_count() < args.world:
        print(f"needs {args.world} GPUs", file=sys.stderr)
        return 2
    bad = 0
    for i, scene in enumerate(args.scenes.split(",")):
        command = [sys.executable, __file__, "--scenes", scene, "--world", str(args.world), "--times", str(args.times)]
        command += ["--port", str(args.port + i)]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(args.world)]
        wanted = [-signal.SIGKILL if scene == "kill" and rank == 1 else 0 for rank in range(args.world)]
        codes = ended(ranks, wanted)
        verdict = "as documented" if codes == wanted else f"NOT as documented: exit codes {codes}"
        print(f"{scene:8} {verdict}", flush=True)
        bad += codes != wanted
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
