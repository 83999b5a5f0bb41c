"""Processes that are the ranks of a test, forked from one that has imported torch: that import is most of their time.

`python forked_ranks.py RUNS MODULES` takes a JSON list of runs, [program, world, folder, arguments], one after the
other. Each is `PROGRAM FOLDER RANK` as many times, or `PROGRAM ARGUMENT ...` in the environment that torchrun makes.
Prints JSON: for each run, of each rank its exit status (minus the signal that ended it), what it wrote and its errors,
which lie in the folder too. After a run that failed there is no other.
"""

import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import traceback
from pathlib import Path


def run_ranks(program, world, folder, environment=None, arguments=()):
    """[(status, output, errors)] of each rank of a program, called with the folder and its rank, or with arguments."""
    return run_in_turn([(program, world, folder, arguments)], environment)[0]


def run_in_turn(runs, environment=None, modules=()):
    """The same of each of several runs (program, world, folder, arguments). `modules`: what ranks will import."""
    told = [[str(program), world, str(folder), [*map(str, arguments)]] for program, world, folder, arguments in runs]
    command = [sys.executable, __file__, json.dumps(told), ",".join(modules)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [[tuple(rank) for rank in ranks] for ranks in json.loads(done.stdout)]


def start(program, rank, folder, arguments):
    """The process id of a rank, which writes to files beside its modules."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for stream, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{kind}.{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
        sys.argv = [program, *(arguments or (folder, str(rank)))]
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(program, world, folder, arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    ranks = [start(program, rank, folder, arguments) for rank in range(world)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
    texts = [[Path(f"{folder}/{kind}.{rank}").read_text() for kind in ("out", "err")] for rank in range(world)]
    return [(code, *said) for code, said in zip(codes, texts, strict=True)]


def main(runs, modules):
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401

    for name in filter(None, modules.split(",")):
        importlib.import_module(name)
    found = []
    for each in json.loads(runs):
        found.append(run(*each))
        if any(code for code, *_ in found[-1]):
            break
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
