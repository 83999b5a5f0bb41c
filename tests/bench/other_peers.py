"""Peers beside NCCL with cuBLAS and torch (peers.py), where a folder with their packages is given (peers_kit.py makes
it): flashinfer's all-reduces, kraken's and Helion's fused products and all-reduces. Times nothing; nothing of theirs is
kept here.

Each is a function without arguments that does one call and returns its result, in this rank's form. None is asked to
set up NVLink multicast; flashinfer's `mnnvl` and NVLS ways and kraken's `multimem` want it and are not here. Made for
each peer what it wants: where an input has to be in symmetric memory it is there beforehand, which costs it nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm
from torch._C._distributed_c10d import _SymmetricMemory

SIGNALS = 1 << 20  # bytes of every signal pad: kraken and Helion take a word for each program and rank
IMPORTED = {  # modules, by the first word of a call's name
    "kraken": ("kraken.fused", "kraken.comm"),
    "helion": ("distributed.all_gather_matmul", "distributed.matmul_reduce_scatter", "distributed.all_reduce"),
    "flashinfer": ("flashinfer.comm",),
}
VLLM_BYTES, VLLM_CTAS = 8 << 20, 36  # vLLM's largest message and its number of blocks
TOKENS, WIDTH = 8192, 4096  # of flashinfer's largest message
KEPT: list[torch.Tensor] = []  # what vLLM's kernels reach by address


def prepare(folder: str) -> None:
    """Before any symmetric memory: room for the peers' signals, and where their packages are."""
    _SymmetricMemory.signal_pad_size = SIGNALS
    find_packages(folder)


def find_packages(folder: str) -> None:
    """Modules of a folder of peers can be imported. What is not compiled there is not compiled in a run either."""
    os.environ["FLASHINFER_DISABLE_JIT"] = "1"
    sys.path[:0] = [folder, os.path.join(folder, "examples")]


def other_of(stem: str, name: str, x: list[torch.Tensor]) -> tuple[Callable | None, str]:
    """A peer's call for the inputs of an op, or why there is none. Collective: what one rank lacks is no rank's."""
    try:
        call, why = MAKERS[stem][name](*x), ""
    except Exception as error:  # not installed, or not for this machine
        call, why = None, reason(error)
    said: list = [None] * dist.get_world_size()
    dist.all_gather_object(said, why)
    why = next(filter(None, said), "")
    return (None if why else call), why


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"


def load_module(module: str):
    """A module of a peer. No C++ is compiled: Helion's all-reduce asks for some that its kernel does not use."""
    import torch.utils.cpp_extension as extension

    inline = extension.load_inline
    extension.load_inline = lambda *_, **__: None
    try:
        return importlib.import_module(module)
    finally:
        extension.load_inline = inline


def shared(like: torch.Tensor, shape=None) -> torch.Tensor:
    """Symmetric memory of a shape; of the values of `like` where none is given."""
    made = symm.empty(*(shape or like.shape), dtype=like.dtype, device=like.device)
    symm.rendezvous(made, dist.group.WORLD.group_name)
    return made.zero_() if shape else made.copy_(like)


# ---- kraken: Triton kernels over symmetric memory


def kraken_gathered(free: int, x: torch.Tensor, w: torch.Tensor) -> Callable:
    """`free`: multiprocessors that its kernel is not told of, which has as many programs as it is told of."""
    fused, own = load_module("kraken.fused"), shared(x)
    there = torch.cuda.get_device_properties(x.device).multi_processor_count
    told = SimpleNamespace(multi_processor_count=there - free)

    def call():
        with patch.object(torch.cuda, "get_device_properties", lambda device: told):
            return fused.all_gather_matmul(own, w.t())[1]

    return call if free else lambda: fused.all_gather_matmul(own, w.t())[1]


def kraken_scattered(name: str, a: torch.Tensor, w: torch.Tensor, res: torch.Tensor) -> Callable:
    fused = getattr(load_module("kraken.fused"), name)
    return lambda: fused(a, w.t()) + res


def kraken_reduced(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Callable:
    """Its result is float32."""
    fused = load_module("kraken.fused")
    return lambda: fused.gemm_one_shot_all_reduce_fused(x, w.t()).to(x.dtype) + b


def kraken_all_reduce(name: str, p: torch.Tensor) -> Callable:
    comm, own = load_module("kraken.comm"), shared(p)
    return partial(getattr(comm, name), own)


# ---- Helion: the kernels of its examples


def helion_gathered(x: torch.Tensor, w: torch.Tensor) -> Callable:
    example, own = load_module("distributed.all_gather_matmul"), shared(x)
    return lambda: example.helion_all_gather_matmul(own, w.t())[1]


def helion_scattered(a: torch.Tensor, w: torch.Tensor, res: torch.Tensor) -> Callable:
    example = load_module("distributed.matmul_reduce_scatter")
    into = shared(a, (a.shape[0], w.shape[0]))
    return lambda: example.helion_matmul_reduce_scatter(into, a, w.t()) + res


def helion_all_reduce(p: torch.Tensor) -> Callable:
    example, own = load_module("distributed.all_reduce"), shared(p.flatten())
    return lambda: example.helion_one_shot_all_reduce(own).view_as(p)


# ---- flashinfer: TensorRT-LLM's and vLLM's all-reduces


def flashinfer_gathered(x: torch.Tensor, w: torch.Tensor) -> Callable:
    """Wants torch's symmetric memory to be NVSHMEM's, and the weight as [K, N]."""
    backend = symm.get_backend(x.device)
    if backend != "NVSHMEM":
        raise RuntimeError(f"its all_gather_matmul wants NVSHMEM's symmetric memory; torch's is {backend}'s here")
    comm, own, wide = load_module("flashinfer.comm"), shared(x), w.t().contiguous()
    return lambda: comm.all_gather_matmul(own, wide, dist.group.WORLD)


@cache
def flashinfer_workspace() -> tuple:
    """(addresses, their tensor, what it was made for), of torch's symmetric memory. Kept: captured graphs reach it."""
    comm = load_module("flashinfer.comm")
    rank, world, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    make = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion
    return make(rank, world, TOKENS, WIDTH, group=group, create_metadata=True)


def flashinfer_all_reduce(one_shot: bool | None, p: torch.Tensor) -> Callable:
    """`one_shot`: None is its own choice."""
    comm, space = load_module("flashinfer.comm"), flashinfer_workspace()
    rows, width = p.shape
    out = torch.empty_like(p)
    if one_shot is False and rows <= dist.get_world_size():
        raise ValueError(f"its two_shot wants more than {dist.get_world_size()} rows")
    none = dict.fromkeys((
        "residual_in", "residual_out", "norm_out", "quant_out", "scale_out", "rms_gamma", "rms_eps", "scale_factor",
        "layout_code",
    ))  # fmt: skip

    def call():
        comm.trtllm_allreduce_fusion(
            p, dist.get_world_size(), dist.get_rank(), rows, width, space[1], launch_with_pdl=True,
            trigger_completion_at_end=True, fp32_acc=True, pattern_code=comm.AllReduceFusionPattern.kAllReduce,
            use_oneshot=one_shot, allreduce_out=out, metadata=space[2], **none,
        )  # fmt: skip
        return out

    return call


def flashinfer_reduced(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Callable:
    """A product of cuBLAS and its all-reduce, as engines call it."""
    into = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
    reduce = flashinfer_all_reduce(None, into)

    def call():
        torch.mm(x, w.t(), out=into)
        return reduce() + b

    return call


class Vllm:
    """vLLM's all-reduce. Eagerly the input is copied into a registered buffer; a captured graph's are registered as
    they are, by `captured` after the capture."""

    def __init__(self, p: torch.Tensor) -> None:
        self.comm = load_module("flashinfer.comm")
        if p.nbytes > VLLM_BYTES:
            raise ValueError(f"more than {VLLM_BYTES >> 20} MiB")
        self.p, self.out = p, torch.empty_like(p)
        self.handle, self.buffers = vllm_handle()

    def __call__(self) -> torch.Tensor:
        bound = torch.cuda.is_current_stream_capturing()
        into = (0, 0) if bound else (self.buffers[dist.get_rank()], VLLM_BYTES)
        self.comm.vllm_all_reduce(self.handle, self.p, self.out, *into, VLLM_CTAS)
        return self.out

    def captured(self) -> None:
        found: list = [None] * dist.get_world_size()
        dist.all_gather_object(found, self.comm.vllm_get_graph_buffer_ipc_meta(self.handle))
        handles, offsets = zip(*found, strict=True)
        self.comm.vllm_register_graph_buffers(self.handle, list(handles), list(offsets))


@cache
def vllm_handle() -> tuple[int, list[int]]:
    comm = load_module("flashinfer.comm")
    state = comm.create_shared_buffer(comm.vllm_meta_size() + VLLM_BYTES)
    buffers = comm.create_shared_buffer(VLLM_BYTES)
    table = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    handle = comm.vllm_init_custom_ar(state, table, dist.get_rank(), True)
    comm.vllm_register_buffer(handle, buffers)
    KEPT.append(table)
    return handle, buffers


MAKERS: dict[str, dict[str, Callable]] = {  # as in multi_rows.OTHERS
    "ag_gemm": {
        "flashinfer": flashinfer_gathered,
        "kraken": partial(kraken_gathered, 0),
        "kraken with 4 SMs free": partial(kraken_gathered, 4),
        "helion": helion_gathered,
    },
    "gemm_rs": {
        "kraken fused": partial(kraken_scattered, "gemm_reduce_scatter"),
        "kraken copy engine": partial(kraken_scattered, "gemm_reduce_scatter_ce_persistent"),
        "helion": helion_scattered,
    },
    "gemm_ar": {"flashinfer": flashinfer_reduced, "kraken": kraken_reduced},
    "small_ar": {
        "flashinfer one_shot": partial(flashinfer_all_reduce, True),
        "flashinfer two_shot": partial(flashinfer_all_reduce, False),
        "flashinfer vllm": Vllm,
        "kraken one_shot": partial(kraken_all_reduce, "one_shot_all_reduce"),
        "kraken two_shot": partial(kraken_all_reduce, "two_shot_all_reduce"),
        "helion one_shot": helion_all_reduce,
    },
}
