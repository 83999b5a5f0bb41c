"""Tensor-parallel MLP inference with the module of specs/tp_mlp.chunk, compared with plain torch.

    torchrun --nproc-per-node 2 examples/tp_mlp_inference.py

On GPUs the call runs fused; without them the module runs its fallback on gloo, and this program says which it was.
Where chunkdsl is installed the module is built first (nothing is written if it is up to date); where it is not, a
module that was built elsewhere will do: build/tp_mlp.py or --module PATH.

Exit codes: 0 the result agrees with torch, 1 it does not, 2 it could not run.
"""

import argparse
import sys
import warnings

import torch
import torch.distributed as dist
from ranks import CannotRun, add_module_arguments, built_module, load, on_ranks, shard

TOLERANCE = 0.02  # of the largest value; bf16 keeps 8 bits, and the reference rounds h as the spec does


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_module_arguments(parser, "specs/tp_mlp.chunk")
    parser.add_argument("--tokens", default=63, type=int, help="global number of tokens; default: 63, a ragged shard")
    return on_ranks(run, parser.parse_args())


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


if __name__ == "__main__":
    sys.exit(main())
