"""One of three processes of test_failing_processes.py: `python failing_rank.py FOLDER RANK`. Prints JSON: what it was
told, and after how many seconds, for each scene. Rank 1 misbehaves; in the last scene it is killed."""

import datetime
import gc
import json
import os
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

SECONDS = 4  # a rank that is missing is given up; ranks that only are slow have longer


def group(ranks=(0, 1, 2), seconds=60):
    """A process group of its own: one that has failed is of no more use."""
    return dist.new_group(list(ranks), timeout=datetime.timedelta(seconds=seconds))


def told(call):
    """[what a call raises, or its shape; seconds]."""
    start = time.monotonic()
    try:
        said = list(call().shape)
    except (RuntimeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    return said, time.monotonic() - start


def scenes(cls, mesh_cls, rank, x, w):
    """{scene: (said, seconds)}; the order is the same on every rank."""
    found = {}
    m = cls(group())
    found["other sizes"] = told(lambda: m.up(x[: 8 - 2 * (rank == 1)], w))
    found["refused"] = told(lambda: m.up(x.float() if rank == 1 else x, w))
    found["after both"] = told(lambda: m.up(x, w))
    m.close()
    found["closed"] = told(lambda: m.up(x, w))

    left, right = group((0, 1)), group((1, 2))
    instances = [cls(g) for g, ranks in ((left, (0, 1)), (right, (1, 2))) if rank in ranks]
    found["overlapping"] = [told(lambda m=m: m.up(x, w)) for m in instances]
    for m in instances:
        m.close()

    mesh = DeviceMesh("cpu", [[0], [1]], mesh_dim_names=("dp", "tp"))
    given = group((0, 1))
    if rank < 2:  # rank 1 has been in one group more: torch alone would wait for ever
        found["unequal"] = told(lambda: mesh_cls(mesh=mesh))
        mesh_cls(given, mesh=mesh).close()
    group((0, 2))
    if rank < 2:
        mesh_cls(mesh=mesh).close()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            mesh_cls(mesh=mesh).close()
        found["descriptors"] = len(os.listdir("/proc/self/fd")) - before

    m = cls(group(seconds=SECONDS))
    if rank == 1:
        time.sleep(SECONDS + 2)  # it skips a call
    else:
        found["skipped"] = told(lambda: m.up(x, w))
        found["next"] = told(lambda: m.up(x, w))
        found["close of it"] = told(m.close)
    del m
    gc.collect()
    dist.barrier()

    m = cls(group(seconds=SECONDS))
    m.up(x, w)
    if rank == 1:
        m.up.plain = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    found["killed"] = told(lambda: m.up(x, w))
    return found


def main():
    folder, rank = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    import mesh_ops
    import two_ops

    two_ops.Machine.PATIENCE = 1.0
    store = dist.FileStore(f"{folder}/store", 3)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=60))
    x, w = torch.ones(8, 32).bfloat16(), torch.ones(16, 32).bfloat16()
    if rank != 1:
        print(json.dumps(scenes(two_ops.TwoOps, mesh_ops.MeshOps, rank, x, w)), flush=True)
    else:
        scenes(two_ops.TwoOps, mesh_ops.MeshOps, rank, x, w)
    os._exit(0)  # rank 1 is gone: there is nobody to leave the group with


if __name__ == "__main__":
    main()
