"""Figures of GPUs, links and kernels, read from data/*.toml. Decides nothing but which GPU a spec means by default."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from chunkdsl.record import record

FOLDER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "data")
DEFAULT_GPU = {"nvlink": "h200", "xgmi": "mi300x"}
ANY_GPU = "h200"  # behind a link that says nothing about the GPU


@record
class Gpu:
    """`gflops` of all multiprocessors at peak, by dtype. `inner_loop`, `warps_loop`, `library_loop`: the fraction of it
    that Triton's kernel, the one of specialised warps and the library's GEMM sustain between their first and last step,
    under load. `memory_gbs` as reached, not nominal; `cache_gbs` of the cache that all share."""

    name: str
    title: str
    target: str
    link: str
    multiprocessors: int
    gflops: dict[str, float]
    inner_loop: float
    warps_loop: float
    library_loop: float
    memory_gbs: float
    cache_gbs: float
    capped: float
    boost: float

    def clock(self, busy: float) -> float:
        """How much faster its multiprocessors run while the `busy` part of them computes products, than under the power
        cap, where `capped` of them or more do. Power goes with the cube of the clock, which ends at `boost`."""
        return min(self.boost, max(1.0, self.capped / busy) ** (1 / 3))


@record
class Link:
    """GB/s in one direction of one rank: `copy_pull`, `copy_push` by copy engine, `programs` by many programs together,
    `tile_stores` by tiles that store into a peer themselves, `warp_stores` the same of specialised warps, `program_gbs`
    by one program's loads and stores, `tma_program_gbs` by its TMA, `pair_gbs` between one pair of ranks; `crowding`,
    of programs whose loads and stores offer more than the link takes: the part of their time that tiles lose to them;
    `programs_to_fill` of them fill the link; `library_gbs` of the process group's collectives,
    `library_reduce_gbs` of its reduce-scatter, `library_all_reduce_gbs` of its all-reduce, there and back. Times in
    microseconds: `flag_us` from a signal until a waiting program of another rank goes on, `word_us` the same of the
    words and flags of a small all-reduce."""

    name: str
    copy_pull: float
    copy_push: float
    programs: float
    tile_stores: float
    warp_stores: float
    program_gbs: float
    tma_program_gbs: float
    crowding: float
    programs_to_fill: int
    pair_gbs: float
    flag_us: float
    library_gbs: float
    library_reduce_gbs: float
    library_all_reduce_gbs: float
    library_us: float
    word_us: float


@record
class Kernels:
    """Microseconds unless the name says otherwise; data/kernels.toml says what each is."""

    kernel_us: float
    first_tile_us: float
    ticket_us: float
    store_gbs: float
    local_flag_us: float
    copy_us: float
    copy_flag_us: float
    join_us: float
    launch_cpu_us: float
    enqueue_cpu_us: float
    library_gemm_us: float
    pointwise_us: float
    null_us: float
    exchange_us: float
    fence_us: float
    read_us: float
    empty_us: float
    source_us: float
    row_us: float


@record
class Machine:
    """What a prediction stands on. `captured`: the call is replayed from a CUDA graph; else its CPU time counts.
    `outer`: of an op over two axes together, the link of the outer one; then `link` joins the `inner` ranks that
    follow one another, and the others are reached over `outer`."""

    gpu: Gpu
    link: Link
    kernels: Kernels
    captured: bool = True
    outer: Link | None = None
    inner: int = 0

    def between(self, a: int, b: int) -> Link:
        """The link over which ranks `a` and `b` of the op reach each other."""
        return self.link if self.outer is None or a // self.inner == b // self.inner else self.outer

    @property
    def links(self) -> tuple[Link, ...]:
        """Outer first, as meshes are written."""
        return (self.link,) if self.outer is None else (self.outer, self.link)


@cache
def figures(name: str) -> Mapping:
    """A data file as it stands: gpus, links, kernels or choices."""
    with open(os.path.join(FOLDER, f"{name}.toml"), "rb") as file:
        return tomllib.load(file)


def margin(name: str) -> float:
    """What a prediction or a measurement must gain, or may lose: a row of data/choices.toml, a fraction of a time."""
    return figures("choices")[name]["value"]


def gpu_names() -> tuple[str, ...]:
    return tuple(figures("gpus"))


def default_gpu(link: str | None) -> str:
    """The GPU that a spec over this link is taken to run on."""
    return DEFAULT_GPU.get(link or "", ANY_GPU)


def without_communication(m: Machine) -> Machine:
    """The same, but bytes and signals arrive at once. Programs that carry chunks still take their multiprocessors."""
    free = math.inf
    rates = ("copy_pull", "copy_push", "programs", "tile_stores", "warp_stores", "pair_gbs")
    carried = dict.fromkeys((*rates, "program_gbs", "tma_program_gbs"), free) | {"crowding": 0.0}
    link, outer = (x and replace(x, flag_us=0.0, word_us=0.0, **carried) for x in (m.link, m.outer))
    none = dict.fromkeys(("copy_us", "copy_flag_us", "join_us", "local_flag_us", "enqueue_cpu_us", "fence_us"), 0.0)
    return replace(m, link=link, outer=outer, kernels=replace(m.kernels, **none))


def without_compute(m: Machine) -> Machine:
    """The same, but kernels start and compute at once: what is left is the time of the communication alone."""
    free = math.inf
    gpu = replace(m.gpu, gflops=dict.fromkeys(m.gpu.gflops, free), memory_gbs=free, cache_gbs=free)
    none = ("kernel_us", "first_tile_us", "ticket_us", "launch_cpu_us", "null_us", "exchange_us", "row_us")
    nothing = dict.fromkeys(none, 0.0)
    return replace(m, gpu=gpu, kernels=replace(m.kernels, store_gbs=free, **nothing))


def link_of(gpu: str, link: str | None) -> str:
    """The link of the figures that stands for the one that a spec names: that one if this GPU has it, else the GPU's
    own fast one (the name in a mesh is free text)."""
    known = figures("gpus")[gpu]
    return link if link in known["links"] else known["link"]


def machine(
    gpu: str, link: str | None = None, captured: bool = True, outer: str | None = None, inner: int = 0
) -> Machine:
    """Everything by the name of a GPU and of a mesh's link; of an op over two axes together also the link of the outer
    one, and how many ranks the inner one has. KeyError for a GPU that is not in the figures."""
    found, name = figures("gpus")[gpu], link_of(gpu, link)
    tensor, plain = (found[key]["value"] * 1e3 for key in ("peak_tflops", "peak_f32_tflops"))
    return Machine(
        Gpu(
            gpu,
            found["title"],
            found["target"],
            name,
            found["multiprocessors"]["value"],
            {"bf16": tensor, "f16": tensor, "f32": plain},
            found["inner_loop"]["value"],
            found["warps_loop"]["value"],
            found["library_loop"]["value"],
            found["memory_gbs"]["value"] * found["memory"]["value"],
            found["cache_gbs"]["value"],
            found["capped"]["value"],
            found["boost"]["value"],
        ),
        _link(gpu, name),
        Kernels(**{key: figure["value"] for key, figure in figures("kernels").items()}),
        captured,
        _link(gpu, link_of(gpu, outer)) if inner else None,
        inner,
    )


def _link(gpu: str, name: str) -> Link:
    found = figures("gpus")[gpu]
    carried = {key: figure["value"] for key, figure in figures("links")[name].items()}
    nominal = found["links"][name]["value"]
    pair = found.get("pairs", {}).get(name, {"value": nominal})["value"]
    return Link(
        name,
        carried["copy_pull"] * nominal,
        carried["copy_push"] * nominal,
        carried["programs"] * nominal,
        carried["tile_stores"] * nominal,
        carried["warp_stores"] * nominal,
        carried["program_gbs"],
        carried.get("tma_program_gbs", carried["program_gbs"]),
        carried.get("crowding", 0.0),
        carried["programs_to_fill"],
        pair * carried["programs"],
        carried["flag_us"],
        carried["library"] * nominal,
        carried["library_reduce"] * nominal,
        carried["library_all_reduce"] * nominal,
        carried["library_us"],
        carried["word_us"],
    )
