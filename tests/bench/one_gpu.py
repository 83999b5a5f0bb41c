"""One GPU: the emitted products against cuBLAS, and how much of a transfer over the host link they hide.

    for f in products host_overlap calls; do chunkdsl build tests/bench/specs/$f.chunk; done
    python tests/bench/one_gpu.py [--rounds 15] [--only edges,products,few,host,calls]

Method: CUDA graphs, cuBLAS before and after each block of ours, ratio to the mean of the two, median over rounds,
random normal data. Times drift with the power cap; ratios are from one run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import triton
from local_ranks import refuse_multicast
from one_gpu_calls import calls_table
from one_gpu_host import overlap_table
from one_gpu_products import FORMS, Products, check_edges, few_table, product_table

PARTS = ("edges", "products", "few", "host", "calls")


def heading(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"


def main() -> None:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    started = time.time()
    if {"edges", "products", "few"} & set(args.only):
        products = Products()
        print(f"compiled in {time.time() - started:.0f} s; Gluon's interface {products.version}", flush=True)
    if "edges" in args.only:
        columns = ("M x N x K", "weight", "both kernels equal", "equal to cuBLAS", "relative error")
        print(heading(*columns), flush=True)
        check_edges(products)
    if "products" in args.only:
        kinds = [f"{form}, {kernel}" for form in FORMS for kernel in ("Triton", "warps")]
        print(heading("M x N x K", "weight", "cuBLAS us", *kinds, "bit-equal"), flush=True)
        product_table(products, args.rounds)
    if "few" in args.only:
        shapes = [f"{columns} columns" for columns in products.module.nt.WARP_COLUMNS]
        print(heading("M x N x K", "wide tiles", "cuBLAS", *shapes, "Triton", "bit-equal"), flush=True)
        few_table(products, args.rounds)
    if "host" in args.only:
        columns = ("op", "transfer us", "cuBLAS us", "one after the other", "fused", "speedup", "hidden", "error")
        print(heading(*columns), flush=True)
        overlap_table(args.rounds)
    if "calls" in args.only:
        print(heading("op", "M", "buffer MiB", "cuBLAS", "one buffer", "two buffers", "bit-equal"), flush=True)
        calls_table(args.rounds)


if __name__ == "__main__":
    main()
