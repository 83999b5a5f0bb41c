"""Tensor-parallel MLP inference with the module of specs/tp_mlp.chunk, compared with plain torch.

    torchrun --nproc-per-node 2 examples/tp_mlp_inference.py

On GPUs the call runs fused; without them the module runs its fallback on gloo, and this program says which it was.
Where chunkdsl is installed the module is built first (nothing is written if it is up to date); where it is not, a
module that was built elsewhere will do: build/tp_mlp.py or --module PATH.

Exit codes: 0 the result agrees with torch, 1 it does not, 2 it could not run.
"""

import argparse
import gc
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parent.parent
NEEDED_ON_CUDA = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
TOLERANCE = 0.02  # of the largest value; bf16 keeps 8 bits, and the reference rounds h as the spec does


class CannotRun(Exception):
    """Why this program cannot run here."""


def main():
    args = arguments()
    try:
        cuda = torch.cuda.is_available()
        rank = join(cuda, os.environ)
        try:
            return run(args, rank, torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu"))
        finally:
            gc.collect()  # an instance is a cycle that holds the group; gloo aborts if it outlives the interpreter
            dist.destroy_process_group()
    except CannotRun as why:
        print(f"tp_mlp_inference: {why}", file=sys.stderr)
        return 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    spec = ROOT / "specs" / "tp_mlp.chunk"
    parser.add_argument("--spec", default=spec, type=Path, help="default: specs/tp_mlp.chunk")
    parser.add_argument("--build", default=ROOT / "build", type=Path, metavar="FOLDER", help="default: build")
    parser.add_argument("--module", type=Path, help="a module that is built already")
    parser.add_argument("--tokens", default=63, type=int, help="global number of tokens; default: 63, a ragged shard")
    return parser.parse_args()


def join(cuda, environ):
    """Join the process group that torchrun describes. The rank."""
    if "RANK" not in environ:
        raise CannotRun("start it with torchrun --nproc-per-node 2 examples/tp_mlp_inference.py")
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


def run(args, rank, device):
    path = built_module(args, rank)
    try:
        m = load(path).TpMlp(dist.group.WORLD, device=device, M=args.tokens)
    except ValueError as why:  # a number of ranks or tokens that the module was not made for: the same on every rank
        raise CannotRun(str(why)) from None
    mlp, world = m.mlp, dist.get_world_size()

    # Whole tensors, the same on every rank, scaled so that activations stay near 1. A rank keeps its shard of each, as
    # the spec places it; the module's tables say which dimension is sharded.
    torch.manual_seed(0)
    whole = {}
    for name, (dtype, shape) in mlp.PARAMETERS.items():
        sizes = [args.tokens if isinstance(size, str) else size for size, _ in shape]
        scale = sizes[-1] ** -0.5 if name.startswith("w") else 1.0
        whole[name] = (torch.randn(sizes) * scale).to(dtype)
    local = {name: shard(whole[name], shape, world, rank).to(device) for name, (_, shape) in mlp.PARAMETERS.items()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the fallback's warning: it is printed below
        y = mlp(local["x"], local["w1"], local["b1"], local["w2"], M=args.tokens)
    why_unfused = mlp.unfused({"M": args.tokens})
    same_bits = True
    if why_unfused is None:
        same_bits = torch.equal(y, mlp.exact(*local.values(), M=args.tokens))

    # The reference: whole tensors on this rank's CPU in f32, rounded where the spec rounds.
    h = torch.nn.functional.gelu(whole["x"].float() @ whole["w1"].float().T + whole["b1"].float())
    expected = h.to(y.dtype).float() @ whole["w2"].float().T
    mine = shard(expected, ((args.tokens, True), (expected.shape[1], False)), world, rank)
    difference = (y.float().cpu() - mine).abs().max().item() if mine.numel() else 0.0
    error = torch.tensor(difference / expected.abs().max().item(), device=device)
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    good = torch.tensor(int(same_bits and error.item() <= TOLERANCE), device=device)
    dist.all_reduce(good, op=dist.ReduceOp.MIN)
    m.check()
    m.close()

    if rank == 0:
        print(f"module   {path}")
        print(f"ranks    {world} on {device.type}, {args.tokens} tokens")
        print(f"path     {'fused' if why_unfused is None else f'fallback, because {why_unfused}'}")
        if why_unfused is None:
            print(f"exact    {'the same bits' if same_bits else 'DIFFERENT BITS'}")
        print(f"error    {error.item():.2e} of the largest value (allowed: {TOLERANCE:.0e})")
        print("result   agrees with torch" if good.item() else "result   DOES NOT AGREE with torch")
    return 0 if good.item() else 1


def shard(tensor, shape, world, rank):
    """This rank's part: contiguous, ceil-divided; the last ranks may have less or nothing."""
    for dim, (_, sharded) in enumerate(shape):
        if sharded:
            size = tensor.shape[dim]
            each = -(-size // world)
            first = min(size, rank * each)
            tensor = tensor.narrow(dim, first, min(size, first + each) - first)
    return tensor.contiguous()


def built_module(args, rank):
    """Path of the module. Rank 0 builds it where that is possible, the others wait."""
    if args.module is not None:
        path, built = args.module, True
    else:
        path = args.build / f"{args.spec.stem}.py"
        built = rank == 0 and (build(args.spec, args.build) or path.exists())
    answer = [built]
    dist.broadcast_object_list(answer, src=0)
    if not answer[0]:
        raise CannotRun(f"chunkdsl could not build {args.spec}, and there is no {path}")
    if not path.exists():
        raise CannotRun(f"there is no {path}")
    return path


def build(spec, folder):
    """Whether chunkdsl is installed and has built the module."""
    try:
        import chunkdsl  # noqa: F401
    except ImportError:
        return False
    command = [sys.executable, "-m", "chunkdsl", "build", os.path.relpath(spec), "-o", str(folder)]
    return subprocess.run(command, stdout=sys.stderr).returncode == 0


def load(path):
    """Import a module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
