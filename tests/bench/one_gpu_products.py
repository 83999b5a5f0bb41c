"""Kernels of products against cuBLAS: alone, with a wait for each chunk of rows, with a signal for each chunk of the
result; by the Triton kernel and by that of specialised warps, in both layouts of the weight."""

from __future__ import annotations

import random
import statistics
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from local_ranks import GonePeer
from modules import load, warps_in_tiles
from timing import capture, replay_us

SHAPES = [
    (8192, 8192, 3584), (4096, 4096, 7168), (4096, 4096, 1792), (8192, 7168, 8192), (8192, 14336, 4096),
    (8192, 14336, 8192), (2048, 8192, 3584), (1024, 8192, 3584), (512, 8192, 8192),
]  # fmt: skip
EDGES = [
    (1000, 1288, 648), (136, 264, 512), (1, 4096, 4096), (3000, 5000, 520), (64, 128, 768), (129, 8, 256),
    (8192, 7168, 512), (8191, 8184, 200),
]  # fmt: skip
FEW = [
    (64, 4096, 4096), (128, 4096, 7168), (256, 4096, 4096), (512, 3072, 4096), (512, 4096, 7168), (1024, 3072, 4096),
    (512, 8192, 8192), (1024, 4096, 7168), (2048, 3072, 4096), (512, 14336, 4096), (2048, 4096, 7168),
]  # fmt: skip
FORMS = ("alone", "waits", "signals")


class OneKernel(GonePeer):
    """Launches nothing but the kernel called `wanted`, on `operands` in place of the two that it was given. Rank 0 of
    two; all that rank 1 sends arrived long ago, and what is pushed to it stays here."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted, self.operands = None, None

    def copy(self, *given):
        """Nothing has to come."""

    fork = join = copy

    def launch(self, kernel, programs, args, constants, *rest, **named):
        if kernel.__name__ != self.wanted:  # a warm-up's neither: the first call compiles
            return None
        described = [key for key, value in args.items() if hasattr(value, "block_shape")]
        for key, tensor in zip(described, self.operands, strict=True):
            shape, strides = list(tensor.shape), list(tensor.stride())
            args = args | {key: replace(args[key], base=tensor, shape=shape, strides=strides)}
        args = args | {"depth": self.operands[0].shape[1]}
        return super().launch(kernel, programs, args, constants, *rest, **named)


@contextmanager
def specialised(module, version):
    """Products of an instance by specialised warps, or (version 0) by Triton."""
    before, module.warps = module.warps, version
    try:
        yield
    finally:
        module.warps = before


class Products:
    """The module of `specs/products.chunk`, one kernel of it at a time."""

    def __init__(self) -> None:
        cls = load("products")
        self.cls = cls
        self.machine = OneKernel()
        self.module = cls(machine=self.machine)
        self.version = self.module.warps

    def call(self, form: str, layout: str, a, b, warps: bool):
        """A function that runs the kernel on a [M, K] and b, and one that says where its result lies: [M, N], of a
        signalling kernel the half of the rows that stays here."""
        op = getattr(self.module, layout if form == "alone" else f"{form}_{layout}")
        (M, K), N = a.shape, b.shape[0 if layout == "nt" else 1]
        launch = f"{op.NAME}_y{'_partial' if form == 'signals' else ''}"
        name = launch + ("_warps" if warps else "")
        dims = {"M": M, "N": N} | ({"K": K} if form == "alone" else {})
        given = [torch.empty(op.local_shape(s, dims), device="cuda", dtype=d) for d, s in op.PARAMETERS.values()]
        out = torch.empty(op.local_shape(op.RESULTS["y"][1], dims), device="cuda", dtype=a.dtype)
        found = getattr(op, f"_{launch.removesuffix('_partial')}_stage").local if form == "signals" else out

        def run():
            with specialised(self.module, self.version if warps else 0):
                self.machine.wanted, self.machine.operands = name, (a, b)
                op.run(True, 1, dims, *given, out)
                self.machine.wanted = None

        def result():
            return found[: M // 2, :N] if form == "signals" else found

        return run, result


def operands(M: int, N: int, K: int, layout: str):
    a = torch.randn(M, K, device="cuda").bfloat16()
    b = torch.randn(*((N, K) if layout == "nt" else (K, N)), device="cuda").bfloat16()
    return a, b, b.t() if layout == "nt" else b


def check_edges(products: Products) -> list[str]:
    """Shapes that no tile divides, few rows, short depths: the bits of both kernels, in tiles of all shapes."""
    lines = []
    for M, N, K in EDGES:
        for layout in ("nt", "nn"):
            a, b, right = operands(M, N, K, layout)
            truth, theirs = a.float() @ right.float(), torch.mm(a, right)
            run, mine = products.call("alone", layout, a, b, True)
            run_triton, tritons = products.call("alone", layout, a, b, False)
            tritons().fill_(float("nan"))
            run_triton()
            equal = True
            for columns in products.module.nt.WARP_COLUMNS:
                warps_in_tiles(products.cls, columns)
                mine().fill_(float("nan"))
                run()
                equal &= torch.equal(mine(), tritons())
            warps_in_tiles(products.cls, 0)
            gap = ((mine().float() - truth).norm() / truth.norm()).item()
            said = "yes" if equal else "NO"
            as_cublas = "yes" if torch.equal(mine(), theirs) else "no"
            lines.append(f"| {M}x{N}x{K} | {layout} | {said} | {as_cublas} | {gap:.1e} |")
            print(lines[-1], flush=True)
    return lines


def product_table(products: Products, rounds: int) -> dict[str, list[float]]:
    """cuBLAS time / ours for each form and kernel; medians over rounds of blocks in random order."""
    order, ratios = random.Random(0), {}
    for M, N, K in SHAPES:
        for layout in ("nt", "nn"):
            a, b, right = operands(M, N, K, layout)
            theirs = torch.empty(M, N, device="cuda", dtype=a.dtype)
            times = max(2, int(2.5e3 / (2 * M * N * K / 7e8)))
            library = capture(partial(torch.mm, a, right, out=theirs), times)
            graphs, kept, equal = {}, [], "yes"
            for form in FORMS:
                for warps in (False, True):
                    run, result = products.call(form, layout, a, b, warps)
                    kept.append(run)  # a graph does not hold its tensors
                    graphs[f"{form} {'warps' if warps else 'triton'}"] = capture(run, times)
                    mine = result()
                    if not torch.equal(mine, theirs[: mine.shape[0]]):
                        equal = f"no ({form})"
            seen, base = {name: [] for name in graphs}, []
            for _ in range(rounds):
                for name in order.sample(sorted(graphs), len(graphs)):
                    before = replay_us(library, times)
                    spent = replay_us(graphs[name], times)
                    base.append((before + replay_us(library, times)) / 2)
                    seen[name].append(base[-1] / spent)
            row = {name: statistics.median(found) for name, found in seen.items()}
            for name, ratio in row.items():
                ratios.setdefault(name, []).append(ratio)
            cells = " | ".join(f"{row[name]:.3f}" for name in graphs)
            print(f"| {M}x{N}x{K} | {layout} | {statistics.median(base):.0f} | {cells} | {equal} |", flush=True)
            del graphs, kept, library
    means = {name: statistics.geometric_mean(found) for name, found in ratios.items()}
    print(f"| geometric mean | | | {' | '.join(f'{m:.3f}' for m in means.values())} | |", flush=True)
    return ratios


def few_table(products: Products, rounds: int) -> list[str]:
    """Microseconds of kernels alone at sizes that have few tiles, in tiles of every shape whatever the table says:
    medians over rounds of blocks in random order. The weight is [N, K]."""
    order, lines = random.Random(0), []
    for M, N, K in FEW:
        a, b, right = operands(M, N, K, "nt")
        theirs = torch.empty(M, N, device="cuda", dtype=a.dtype)
        times = max(2, int(2e3 / max(8, 2 * M * N * K / 7e8)))
        graphs, kept, equal = {"cuBLAS": capture(partial(torch.mm, a, right, out=theirs), times)}, [], True
        for columns in (*products.module.nt.WARP_COLUMNS, 0):  # 0: Triton's kernel
            warps_in_tiles(products.cls, columns)
            run, result = products.call("alone", "nt", a, b, bool(columns))
            kept.append(run)  # a graph does not hold its tensors
            graphs[str(columns)] = capture(run, times)
            equal &= torch.equal(result(), theirs)
        warps_in_tiles(products.cls, 0)
        seen = {name: [] for name in graphs}
        for _ in range(rounds):
            for name in order.sample(sorted(graphs), len(graphs)):
                seen[name].append(replay_us(graphs[name], times))
        cells = " | ".join(f"{statistics.median(found):.0f}" for found in seen.values())
        wide, said = -(-M // 128) * -(-N // 256), "yes" if equal else "no"
        lines.append(f"| {M}x{N}x{K} | {wide} | {cells} | {said} |")
        print(lines[-1], flush=True)
        del graphs, kept
    return lines
