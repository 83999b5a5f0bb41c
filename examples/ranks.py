"""What the programs of this folder share: joining the process group that torchrun describes, building a module and
loading it. Where chunkdsl is not installed, --module names a module that was built elsewhere.
"""

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parent.parent
NEEDED_ON_CUDA = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}


class CannotRun(Exception):
    """Why a program cannot run here."""


def on_ranks(run, args):
    """`run(args, rank, device)` on every rank of torchrun, between joining and leaving the group. The exit code: its
    result, or 2 where it cannot run."""
    try:
        cuda = torch.cuda.is_available()
        rank = join(cuda, os.environ)
        try:
            return run(args, rank, torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu"))
        finally:
            gc.collect()  # an instance is a cycle that holds the group; gloo aborts if it outlives the interpreter
            dist.destroy_process_group()
    except CannotRun as why:
        print(f"{Path(sys.argv[0]).stem}: {why}", file=sys.stderr)
        return 2


def add_module_arguments(parser, spec):
    """--spec, --build and --module: where the module comes from. `spec`: path from the repository's root."""
    parser.add_argument("--spec", default=ROOT / spec, type=Path, help=f"default: {spec}")
    parser.add_argument("--build", default=ROOT / "build", type=Path, metavar="FOLDER", help="default: build")
    parser.add_argument("--module", type=Path, help="a module that is built already")


def join(cuda, environ):
    """Join the process group that torchrun describes. The rank."""
    if "RANK" not in environ:
        raise CannotRun(f"start it with torchrun --nproc-per-node 2 {sys.argv[0]}")
    if not cuda:
        dist.init_process_group("gloo")
        return dist.get_rank()
    missing = missing_on_cuda(environ)
    if missing:
        raise CannotRun(f"on GPUs set {' '.join(missing)} first: NVLink multicast stays off")
    local = int(environ["LOCAL_RANK"])
    if local >= torch.cuda.device_count():
        raise CannotRun(f"local rank {local} has no GPU of its own; there are {torch.cuda.device_count()}")
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    return dist.get_rank()


def missing_on_cuda(environ):
    return [f"{name}={value}" for name, value in NEEDED_ON_CUDA.items() if environ.get(name) != value]


def shard(tensor, shape, world, rank):
    """This rank's part: contiguous, ceil-divided; the last ranks may have less or nothing."""
    for dim, (_, sharded) in enumerate(shape):
        if sharded:
            size = tensor.shape[dim]
            each = -(-size // world)
            first = min(size, rank * each)
            tensor = tensor.narrow(dim, first, min(size, first + each) - first)
    return tensor.contiguous()


def built_module(args, rank, worlds=()):
    """Path of the module. Rank 0 builds it where that is possible, the others wait. `worlds`: numbers of ranks that the
    program can run on, if few: the build then proves no others."""
    if args.module is not None:
        path, built = args.module, True
    else:
        path = args.build / f"{args.spec.stem}.py"
        built = rank == 0 and (build(args.spec, args.build, worlds) or path.exists())
    answer = [built]
    dist.broadcast_object_list(answer, src=0)
    if not answer[0]:
        raise CannotRun(f"chunkdsl could not build {args.spec}, and there is no {path}")
    if not path.exists():
        raise CannotRun(f"there is no {path}")
    return path


def build(spec, folder, worlds=()):
    """Whether chunkdsl is installed and has built the module."""
    try:
        import chunkdsl  # noqa: F401
    except ImportError:
        return False
    command = [sys.executable, "-m", "chunkdsl", "build", os.path.relpath(spec), "-o", str(folder)]
    command += ["--only", "--world", ",".join(map(str, worlds))] if worlds else []
    return subprocess.run(command, stdout=sys.stderr).returncode == 0


def load(path):
    """Import a module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
