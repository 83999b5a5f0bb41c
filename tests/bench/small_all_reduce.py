"""Small all-reduces on GPUs: bits, graphs, latency, and a decode loop. Modules are built beforehand:

    chunkdsl build specs/decode_all_reduce.chunk -o build/gpu
    for f in small_ar small_rows; do chunkdsl build tests/bench/specs/$f.chunk -o build/gpu; done
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0 CHUNKDSL_GPU_BUILD=build/gpu
    python tests/bench/small_all_reduce.py --json out.json                # two GPUs: everything
    python tests/bench/small_all_reduce.py --local 2,4 --json out.json    # one GPU: virtual ranks, bits only

Latencies are microseconds of a call inside a CUDA graph of 100 calls, p50 and p99 over replays, of the slower rank.
Ends by itself after --deadline seconds, whatever hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))

# Many ranks' streams in one process: with few hardware queues a spinning kernel holds up another rank's.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import decode_loop
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton
import triton.language as tl
from check_processes import one_rank
from local_ranks import end_after, refuse_multicast, run_ranks
from modules import load
from timing import latency

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]  # rows of 4 KiB
CALLS = 100
HAZARDS = (0x8000, 0x0001, 0x8001, 0x007F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x7FFF, 0x0000, 0x3F80, 0xBF80)


@triton.jit
def null(p):
    tl.debug_barrier()


def draw(op, tokens: int, rank: int, seed: int) -> list[torch.Tensor]:
    """The payload differs by rank, whatever else an op takes is the same everywhere."""
    made = []
    for i, (name, (dtype, shape)) in enumerate(op.PARAMETERS.items()):
        own = rank + 1 if name == "p" else 0
        generator = torch.Generator(device="cuda").manual_seed(1000 * seed + 10 * i + own)
        sizes = [tokens if isinstance(s, str) else s for s, _ in shape]
        made.append(torch.randn(sizes, generator=generator, device="cuda").to(dtype))
    return made


def hazards(op, tokens: int, rank: int) -> list[torch.Tensor]:
    """Payloads of zeros of both signs, subnormals, infinities and NaNs of any kind, all ones among them."""
    tensors = draw(op, tokens, rank, 3)
    p = tensors[0].view(torch.int16).flatten()
    bits = torch.tensor([b - 65536 if b > 32767 else b for b in HAZARDS], dtype=torch.int16, device="cuda")
    p[: p.numel() // 2] = bits.repeat(p.numel() // len(HAZARDS) + 1)[rank : rank + p.numel() // 2]
    return tensors


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bits; NaNs of any bits are equal."""
    return bool(((a.view(torch.int16) == b.view(torch.int16)) | (a.isnan() & b.isnan())).all())


def both(op, tensors: list[torch.Tensor]) -> bool:
    """Fused against `exact`, results and what is updated in place."""
    a, b = [t.clone() for t in tensors], [t.clone() for t in tensors]
    fused = op(*a)
    op.machine.synchronize()
    op.module.check()
    wanted = op.exact(*b)
    op.machine.synchronize()
    return same(fused, wanted) and all(same(x, y) for x, y in zip(a, b, strict=True))


def check_bits(op, machine, sizes) -> list:
    """What is wrong, over sizes that shrink and grow."""
    bad = [("size", n) for i, n in enumerate(sizes) if not both(op, draw(op, n, machine.rank, i))]
    return bad + [("hazards", n) for n in sizes[:3] if not both(op, hazards(op, n, machine.rank))]


def check_graph(op, machine, tokens: int, calls: int = 200, replays: int = 5) -> int:
    """Wrong replays of a graph of `calls` calls, an odd number of times, with new data for each."""
    tensors = draw(op, tokens, machine.rank, 77)
    op(*tensors)
    machine.synchronize()
    machine.vote("captured next")
    graph, out = torch.cuda.CUDAGraph(), None
    for turn in range(machine.world):  # one capture at a time: entering one synchronises the device
        if turn == machine.rank or not hasattr(machine, "board"):
            if out is None:
                with torch.cuda.graph(graph, stream=own_stream(machine), capture_error_mode="thread_local"):
                    for _ in range(calls):
                        out = op(*tensors)
        machine.vote(turn)
    wrong = 0
    for i in range(replays):
        fresh = draw(op, tokens, machine.rank, 200 + i)
        for t, f in zip(tensors, fresh, strict=True):
            t.copy_(f)
        graph.replay()
        machine.synchronize()
        if op.INOUT:  # a chain of updates: the same chain eagerly
            chain = [t.clone() for t in fresh]
            for _ in range(calls):
                wanted = op.exact(*chain)
        else:
            wanted = op.exact(*fresh)
        machine.synchronize()
        wrong += not same(out, wanted)
    op.module.check()
    return wrong


def own_stream(machine):
    return torch.cuda.current_stream() if hasattr(machine, "board") else None


def check_streams(first, second, machine, tokens: int) -> int:
    """Calls of two instances, alternating between two streams."""
    x = draw(first, tokens, machine.rank, 5)
    wanted = first.exact(*x)
    machine.synchronize()
    other, wrong, results = torch.cuda.Stream(), 0, []
    other.wait_stream(torch.cuda.current_stream())
    for i in range(10):
        with torch.cuda.stream(other if i % 2 else torch.cuda.current_stream()):
            results.append((first if i % 3 else second)(*x))
    torch.cuda.current_stream().wait_stream(other)
    other.synchronize()
    machine.synchronize()
    return wrong + sum(not same(r, wanted) for r in results)


def correctness(machine, say) -> dict:
    """Everything about bits, on any machine."""
    found = {}
    cls = load("small_ar")
    one, two = (cls(machine=machine, timeout=20.0, T=256) for _ in range(2))
    for name in cls.OPS:
        op = getattr(one, name)
        bits = check_bits(op, machine, [256, 1, 3, 64, 200, 2, 96])
        found[name] = dict(bits=bits, replays=check_graph(op, machine, 3))
        say(f"{name}: wrong sizes {found[name]['bits']}, wrong replays {found[name]['replays']} of 5")
    found["streams"] = check_streams(one.word, two.word, machine, 4)
    say(f"two instances on two streams: {found['streams']} wrong of 10; counters of guess {one.guess.counters()}")
    one.guess.audit = True
    found["audit"] = check_bits(one.guess, machine, [1, 8, 64])
    found["counters"] = one.guess.counters()
    say(f"audited: wrong {found['audit']}, counters {found['counters']}")
    decode = load("decode_all_reduce")(machine=machine, timeout=20.0)
    for name in decode.OPS:
        op = getattr(decode, name)
        found[f"decode {name}"] = dict(bits=check_bits(op, machine, [1, 64, 3, 16, 64, 2]),
                                       replays=check_graph(op, machine, 1, 20))
        say(f"decode {name}: {found[f'decode {name}']}")
    for instance in (one, two, decode):
        instance.close()
    return found


# ---- two GPUs


def latencies(m, norm, rounds, rank, say) -> list[dict]:
    import torch.distributed._symmetric_memory as symm

    group, rows = dist.group.WORLD.group_name, []
    shared = symm.empty(max(SIZES) * 2048, dtype=torch.bfloat16, device="cuda")
    symm.rendezvous(shared, group)
    shared.zero_()
    say(f"null kernel: p50 {latency(lambda: null[(8,)](shared, num_warps=4), CALLS)[0]} us")
    for tokens in SIZES:
        p = torch.zeros(tokens, 2048, dtype=torch.bfloat16, device="cuda")
        out, part = torch.empty_like(p), shared[: p.numel()]
        calls = {
            "nccl": lambda p=p: dist.all_reduce(p),
            "torch one_shot": lambda part=part: torch.ops.symm_mem.one_shot_all_reduce(part, "sum", group),
            "torch two_shot": lambda part=part: torch.ops.symm_mem.two_shot_all_reduce_(part, "sum", group),
        }
        for name in m.OPS:
            calls[name] = partial(getattr(m, name), p, out=out)
        if tokens * 2048 % 4096 == 0 and tokens <= 128:
            q = torch.zeros(tokens // 2, 4096, dtype=torch.bfloat16, device="cuda")
            res, g, y = torch.zeros_like(q), torch.ones(4096, dtype=torch.bfloat16, device="cuda"), torch.empty_like(q)
            calls["ar_norm"] = partial(norm, q, res, g, out=y)
            calls["two_norm"] = partial(rounds, q, res, g, out=y)
        row = {"KiB": tokens * 4}
        for name, call in calls.items():
            try:
                row[name] = latency(call, CALLS)
            except Exception as error:  # a kind that this torch or this size does not have
                row[name] = f"{type(error).__name__}: {str(error)[:60]}"
        m.check()
        rows.append(row)
        say(" | ".join(f"{k} {v[0]:.2f}/{v[1]:.2f}" if isinstance(v, tuple) else f"{k} {v}" for k, v in row.items()))
    return rows


def main_rank(rank: int, world: int, args) -> None:
    end_after(args.deadline)
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}

    def say(text):
        if rank == 0:
            print(f"[{time.time() - began:5.0f} s] {text}", flush=True)

    began = time.time()
    with one_rank(rank, world, args.port) as machine:
        if "correctness" in args.parts:
            found["correctness"] = correctness(machine, say)
            write(rank, args.json, found)
        # A closed instance has let go of its machine.
        fresh = [type(machine)(dist.group.WORLD, machine.device) for _ in range(3)]
        classes = load("small_ar"), load("decode_all_reduce"), load("small_rows")
        classes[2].OPS = {"two_norm": classes[2].OPS["two_norm"]}
        m, decode, rounds = (cls(machine=f, timeout=20.0) for cls, f in zip(classes, fresh, strict=True))
        say("modules are built")
        if "latency" in args.parts:
            found["latency"] = latencies(m, decode.ar_norm, rounds.two_norm, rank, say)
            write(rank, args.json, found)
        for tokens in (1, 8, 64) if "decode" in args.parts else ():
            shape = decode_loop.Shape(layers=args.layers)
            times, gaps = decode_loop.compare(decode, shape, tokens, rank, world, torch.device("cuda", rank), 50)
            found[f"decode {tokens}"] = dict(us=times, gaps=gaps)
            say(f"decode, {tokens} tokens, us a step: {times}; gaps {gaps}")
            gains = {k: round((times["library"] / v - 1) * 100, 1) for k, v in times.items()}
            say(f"decode, {tokens} tokens, per cent tokens a second over NCCL: {gains}")
            write(rank, args.json, found)
        for instance in (m, decode, rounds):
            instance.close()


def write(rank: int, path: str, found: dict) -> None:
    if rank == 0 and path:
        Path(path).write_text(json.dumps(found, indent=1), encoding="utf-8")


def local(worlds: list[int], args) -> int:
    """Virtual ranks: several threads of this process on one GPU."""
    end_after(args.deadline)
    found, failed = {}, 0
    for world in worlds:
        share = torch.cuda.get_device_properties(0).multi_processor_count // world - 8
        began = time.time()

        def body(machine, began=began, world=world):
            def say(text):
                if machine.rank == 0:
                    print(f"[{time.time() - began:5.0f} s] {world} ranks: {text}", flush=True)

            return correctness(machine, say)

        results = run_ranks(world, share, body)
        found[str(world)] = results[0]
        failed += any(wrong(r) for r in results)
    write(0, args.json, found)
    print("ok" if not failed else "WRONG", flush=True)
    return int(failed > 0)


def wrong(found: dict) -> bool:
    ops = [v for v in found.values() if isinstance(v, dict) and "bits" in v]
    return bool(found["streams"] or found["audit"] or any(v["bits"] or v["replays"] for v in ops))


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", type=lambda t: [int(x) for x in t.split(",")], default=[])
    parser.add_argument("--json", default="")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--deadline", type=int, default=460)
    parser.add_argument("--port", type=int, default=29533)
    parser.add_argument("--parts", type=lambda t: t.split(","), default=["correctness", "latency", "decode"])
    args = parser.parse_args()
    if args.local:
        return local(args.local, args)
    mp.spawn(main_rank, args=(args.world, args), nprocs=args.world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
