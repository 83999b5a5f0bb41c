"""The shipped module's kernels, compiled ahead of time for every target, with the lints for NVIDIA: on Hopper those of
specialised warps too, in each of their tiles."""

from __future__ import annotations

import ast
import time
from pathlib import Path

from chunkdsl.aot.lints import lint
from chunkdsl.aot.pool import compile_all
from chunkdsl.aot.record import KernelUse, RecordingMachine
from chunkdsl.aot.targets import CompileError
from chunkdsl.ir.meshes import World, ranks_of, world_text
from chunkdsl.kernels.rewrite import SUFFIX, original
from chunkdsl.parsing import parse_python
from chunkdsl.plan.tile_kernels import TARGET
from chunkdsl.runtime.warps import gluon_version
from chunkdsl.verify.simulate import Row, few

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
# Not asked of AMD: tiles are chosen for NVIDIA's register files, and its compiler leaves a wait out (lint_amdgcn.py).
ON_AMD = frozenset({"spills", "release-before-write-back-amd"})
OF_WORDS = frozenset({"narrow-access", "offset-in-32-bits", "relaxed-poll", "load-without-invalidate-amd",
                      "acquire-by-one-wave-amd"})  # fmt: skip
TRACED = frozenset({"offset-in-32-bits"})  # a user's kernel ran its own offsets at the largest sizes (`kernels`)


def compile_module(module, title: str, path: Path, world: World) -> list[Row]:
    """One row for each target. `module` is the shipped one, imported from `path`."""
    text = path.read_text(encoding="utf-8")
    return [compile_target(module, title, text, world, target) for target in TARGETS]


def compile_target(module, title: str, text: str, world: World, target: str) -> Row:
    started = time.perf_counter()
    machine = RecordingMachine(rank=0, world=ranks_of(world), target=target)
    found_by = type(title, (getattr(module, title),), {"warps": gluon_version() if target == TARGET else 0})
    found_by(machine=machine, mesh=world if isinstance(world, tuple) else None)
    # `exact` differs by a constant that only leaves code out; it is compiled for one target.
    uses = [u for u in machine.uses if is_fused(u) or target == "sm_90"]
    try:
        made = compile_all(uses, [target], processes=1)
    except CompileError as error:
        spent = time.perf_counter() - started
        return Row("all", f"compiles for {target}", f"{world_text(world)} ranks", False, str(error), spent)
    users, amd = users_kernels(text), ON_AMD if target.startswith("gfx") else frozenset()
    found = []
    for use, made_of in made:
        found += lint(made_of, target, text, amd | (of_a_user(use, target) if use.name in users else skipped(use)))
    detail = few([str(f) for f in found]) or f"{len(made)} kernels"
    check, spent = f"compiles for {target} and passes the lints", time.perf_counter() - started
    return Row("all", check, f"{world_text(world)} ranks", not found, detail, spent)


def skipped(use: KernelUse) -> frozenset[str]:
    """Lints that do not fit a kernel of words: a thread polls one word of 4 or 8 bytes, a payload has less than 2^28 of
    them, and what is loaded after a poll is no other rank's: a word says for itself whether it is there. Nor columns of
    shards that begin anywhere (EVEN false): they are not 16 bytes apart."""
    names = use.kernel.arg_names
    if "FORM" in names:
        return OF_WORDS
    uneven = "EVEN" in names and not use.constants[(names.index("EVEN"),)]
    return frozenset(("narrow-access",)) if uneven else frozenset()


def of_a_user(use: KernelUse, target: str) -> frozenset[str]:
    """Lints that do not fit a user's kernel. Without TMA Triton makes accesses of single elements of descriptors that
    come from the host; the fused launch makes its own of pointers whose alignment is known."""
    from_host = target == "sm_80" and any("tensordesc" in str(t) for t in use.signature.values())
    return TRACED | {"narrow-access", "dot-loop-not-pipelined"} if from_host else TRACED


def users_kernels(text: str) -> frozenset[str]:
    """Kernels of a module that are a user's, untouched or as the tiles of a launch."""
    functions = {n.name: n for n in parse_python(text).body if isinstance(n, ast.FunctionDef)}
    tickets = {name for name in functions if name.endswith(SUFFIX)}
    own = {original(name) for name in tickets}
    calls = {name for name, node in functions.items() if {getattr(n, "id", "") for n in ast.walk(node)} & tickets}
    return frozenset(own | {name.removesuffix("_tile") for name in calls})


def is_fused(use: KernelUse) -> bool:
    """False for the variant that `exact` launches."""
    names = use.kernel.arg_names
    return "FUSED" not in names or bool(use.constants[(names.index("FUSED"),)])
