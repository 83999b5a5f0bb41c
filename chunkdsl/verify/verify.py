"""The whole of `verify`: prove, build the twin, simulate, compare, compile the shipped module."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from chunkdsl.check.worlds import prove_op, served
from chunkdsl.ir.graph import Program
from chunkdsl.ir.meshes import World, built_for, in_order, ranks_of, world_text
from chunkdsl.parsing import compile_blocks
from chunkdsl.plan.schedule import Schedule
from chunkdsl.render.module import class_name, render_module
from chunkdsl.verify.compile import compile_module
from chunkdsl.verify.cuda import compile_sources
from chunkdsl.verify.simulate import Row, call_sizes, run_op
from chunkdsl.verify.twin import open_gates, shrink


def verify(
    program: Program,
    schedule: Schedule,
    worlds: Sequence[World],
    seeds: int,
    *,
    full_size: bool = False,
    compiled: bool = True,
    command: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Rows of the table, in a fixed order. `say` gets progress; `command` begins the commands that repeat a failure."""
    title = class_name(schedule.path)
    # The compiler gets a process of its own: here Triton's language is patched for the interpreter.
    with (
        tempfile.TemporaryDirectory(prefix="chunkdsl-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as background,
    ):
        future = None
        if compiled:
            say("compiling the shipped module for sm_80, sm_90, sm_100 and gfx942 in the background")
            sizes = [w for w in in_order([*built_for(schedule.mesh), *worlds]) if served(schedule, w)]
            text = render_module(schedule, tuple(sizes))
            world = max([w for w in worlds if w in sizes] or sizes or worlds, key=ranks_of)
            future = background.submit(compile_text, text, folder, title, world)
        rows = []
        for world in worlds:
            found = prove_rows(schedule, world, say)
            if served(schedule, world):  # else the module refuses this size, as the proof says
                first = world == worlds[0]
                found += simulate_rows(program, schedule, world, seeds, Path(folder), title, full_size, first, say)
            again = f"{command} --world {world_text(world)}"
            rows += [r if r.passed else replace(r, again=f"{again} {r.again}".rstrip()) for r in found]
        if future is not None:
            say("waiting for the compiler")
            rows += future.result()
    return rows


def bounded(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule with each run-time dim bounded by `sizes`."""
    return replace(schedule, ranges=tuple(replace(r, high=sizes[r.name]) for r in schedule.ranges))


def prove_rows(schedule: Schedule, world: World, say) -> list[Row]:
    rows = []
    for op in schedule.ops:
        say(f"proving {op.name} for {world_text(world)} ranks")
        started = time.perf_counter()
        verdict = prove_op(schedule, op, world)
        detail = verdict.note or "\n".join(str(r) for r in verdict.refutations)
        spent = time.perf_counter() - started
        rows.append(Row(op.name, "proof", f"{world_text(world)} ranks", verdict.proven, detail, spent, "--no-compile"))
    return rows


def simulate_rows(program, schedule, world, seeds, folder, title, full_size, fallback, say) -> list[Row]:
    """`fallback`: run it too, once for each op: it has no orders to try."""
    small = open_gates(schedule, world) if full_size else shrink(schedule, world)
    text = render_module(small, (world,))
    module = load(text, folder, f"{'full' if full_size else 'twin'}_{world_text(world)}")
    typed = {op.name: op for op in program.ops}
    calls = call_sizes(small, world)
    rows = []
    for op in small.ops:
        if op.exchange and op.exchange.via == "multimem":
            why = "its kernel is CUDA C++ and its sums are the switch's: it is proven and compiled, and was never run"
            rows.append(Row(op.name, "simulation", f"{world_text(world)} ranks", True, why, ran=False))
            continue
        for seed in range(seeds):
            say(f"simulating {op.name} on {world_text(world)} ranks, seed {seed}: {describe(op, calls)}")
            pointers = seed % 2 == 1
            again = f"--seeds {seed + 1} --no-compile"
            also = dict(pointers=pointers, fallback=fallback and seed == 0)
            made = run_op(module, title, small, op, typed[op.name], world, seed, calls, **also)
            rows += [replace(r, again=again) for r in made]
    return rows


def describe(op, calls) -> str:
    """The sizes that a simulated run uses."""
    values = "; ".join(" ".join(f"{k}={v}" for k, v in c.items()) for c in calls)
    if op.exchange:
        return f"blocks of {op.exchange.forms[0].blocks[0][0]} words, calls {values}"
    t = next((n.tiling for n in op.launches if n.products), op.launches[0].tiling)
    shapes = ", ".join(f"{p.name}[{' x '.join(str(e.size) for e in p.shape)}]" for p in op.parameters)
    return f"{shapes}, tile {t.bm}x{t.bn}x{t.bk}, calls {values}"


def compile_text(text: str, folder: str, title: str, world: World) -> list[Row]:
    module = load(text, Path(folder), "shipped")
    return [*compile_module(module, title, Path(module.__file__), world), *compile_sources(module, title)]


def load(text: str, folder: Path, name: str):
    """Import a module's text from a file: Triton reads kernels from source files."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    unique = f"chunkdsl_verify_{name}_{abs(hash(text)):x}"
    spec = importlib.util.spec_from_file_location(unique, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    for code in compile_blocks(text, str(path)):
        exec(code, module.__dict__)
    return module
