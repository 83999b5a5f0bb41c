"""One of three processes of test_failing_processes.py: `python failing_rank.py FOLDER RANK`. Prints JSON: what it was
told, and after how many seconds, for each scene. Rank 1 misbehaves; in the last scene it is killed.

Only collectives that must fail have a short timeout: ranks may be slow."""

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

SECONDS = 1.5  # until a rank that is missing is given up
LIVING = (0, 2)


def group(ranks=(0, 1, 2)):
    """A process group of its own: one that has failed is of no more use."""
    return dist.new_group(list(ranks), timeout=datetime.timedelta(seconds=60))


def hasten(m):
    """Collectives of this instance's group wait SECONDS from now on."""
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=SECONDS), m.machine.group)


def hasten_inside(m):
    """The same, when a call has come to its collectives."""
    plain = m.up.plain
    m.up.plain = lambda *given: hasten(m) or plain(*given)


def meet_before(roll_call):
    """A roll call names who has not come in time: those who will come wait for each other before."""

    def meet(machine):
        store, name = dist.distributed_c10d._get_default_store(), machine.group.group_name
        number = machine.ROLL_CALLS.get(name, 0)
        store.set(f"meet/{name}/{number}/{machine.rank}", "here")
        store.wait([f"meet/{name}/{number}/{rank}" for rank in LIVING])
        return roll_call(machine)

    return meet


def fail(*_):
    raise OSError("no room")


def told(call):
    """[what a call raises, or its shape; seconds]."""
    start = time.monotonic()
    try:
        said = list(call().shape)
    except (RuntimeError, ValueError, OSError) as error:
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

    m = cls(group())
    if rank != 1:  # which skips a call
        hasten(m)
        found["skipped"] = told(lambda: m.up(x, w))
        found["next"] = told(lambda: m.up(x, w))
        found["close of it"] = told(m.close)
    del m
    gc.collect()
    dist.barrier()

    m = cls(group())
    if rank == 1:
        m.up.plain = fail
    else:
        hasten_inside(m)
    found["raised"] = told(lambda: m.up(x, w))
    found["after it"] = told(lambda: m.up(x, w))
    del m
    gc.collect()
    dist.barrier()

    m = cls(group())
    m.up(x, w)
    if rank == 1:
        print(json.dumps(found), flush=True)
        m.up.plain = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    else:
        hasten_inside(m)
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
    two_ops.Machine.roll_call = meet_before(two_ops.Machine.roll_call)
    store = dist.FileStore(f"{folder}/store", 3)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=60))
    x, w = torch.ones(8, 32).bfloat16(), torch.ones(16, 32).bfloat16()
    print(json.dumps(scenes(two_ops.TwoOps, mesh_ops.MeshOps, rank, x, w)), flush=True)
    os._exit(0)  # rank 1 is gone: there is nobody to leave the group with


if __name__ == "__main__":
    main()
