"""The GPUs a module is compiled for ahead of time, and the one call that compiles a kernel for one of them.

Needs no device: Triton lowers for a named target and ships ptxas. Does not load, run or time anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """`shared`: bytes of shared memory that one program may have; `tensor_memory`: columns (sm_100); `sms`: of the
    common board."""

    name: str
    gpu: GPUTarget
    shared: int
    sms: int
    tensor_memory: int = 0

    @property
    def nvidia(self) -> bool:
        return self.gpu.backend == "cuda"


TARGETS = {
    t.name: t
    for t in (
        Target("sm_80", GPUTarget("cuda", 80, 32), 163 * KIB, 108),
        Target("sm_90", GPUTarget("cuda", 90, 32), 227 * KIB, 132),
        Target("sm_100", GPUTarget("cuda", 100, 32), 227 * KIB, 148, 512),
        Target("gfx942", GPUTarget("hip", "gfx942", 64), 64 * KIB, 304),
    )
}


class CompileError(Exception):
    """A kernel that the compiler refused, with the compiler's own words."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of one kernel variant for one target.

    `ptx` is empty on AMD, `amdgcn` on NVIDIA. `shared`: bytes. `registers`: 32-bit, per thread. `spills`: bytes that
    a thread stores to local memory on NVIDIA, spilled registers on AMD. Both None if unknown.
    `warnings`: what Python and the compiler printed on the way.
    """

    kernel: str
    target: str
    ttgir: str
    ptx: str
    amdgcn: str
    shared: int
    tensor_memory: int
    registers: int | None
    spills: int | None
    warps: int
    stages: int
    warnings: tuple[str, ...] = ()


def find_target(name: str) -> Target:
    """The target called `name`. ValueError names those known."""
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; known are {', '.join(TARGETS)}")
    return TARGETS[name]


def compile_kernel(use, target: str) -> Compiled:
    """Compile a `record.KernelUse` for `target`. CompileError carries the compiler's message.

    Not inside `interpreting()`: there Triton's language is patched for the CPU.
    """
    chosen = find_target(target)
    made_of = GluonASTSource if use.kernel.is_gluon() else ASTSource
    source = made_of(use.kernel, dict(use.signature), dict(use.constants), dict(use.attrs))
    options = {"num_warps": use.warps, "num_stages": use.stages}
    options |= {"maxnreg": use.registers} if use.registers else {}
    said: list[str] = []
    try:
        with _overheard(said), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = _compile(source, chosen, options)
    except Exception as error:
        told = [line for line in said if "error:" in line or "fatal" in line] or said[:5]
        inner: BaseException = error  # Triton wraps what went wrong once for each call on the way
        while inner.__cause__ is not None:
            inner = inner.__cause__
        told = [str(inner), *told] if inner is not error else told
        raise CompileError("\n".join([f"{use.name} for {target}: {type(error).__name__}: {error}", *told])) from error
    heard = (*(str(w.message) for w in warned), *(line for line in said if "warning:" in line))
    texts = {k: made.asm[k] if k in made.asm else "" for k in ("ttgir", "ptx", "amdgcn")}
    registers, spills = (
        _nvidia_resources(made.asm["cubin"], texts["ptx"], chosen) if chosen.nvidia else _amd_resources(texts["amdgcn"])
    )
    meta = made.metadata
    return Compiled(
        use.name,
        target,
        **texts,
        shared=meta.shared,
        tensor_memory=getattr(meta, "tmem_size", 0) or 0,
        registers=registers,
        spills=spills,
        warps=use.warps,
        stages=use.stages,
        warnings=heard,
    )


def _nvidia_resources(cubin: bytes, ptx: str, target: Target) -> tuple[int | None, int | None]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [_tool("cuobjdump"), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", text)
    if not found:
        return None, None
    stack = int(found[2]) + int(found[3])
    return int(found[1]), _spilled(ptx, target) if stack else 0


def _spilled(ptx: str, target: Target) -> int | None:
    """Bytes of spill stores: a stack may also hold arrays and calls, and only ptxas tells them apart."""
    arch = re.search(r"^\.target (sm_\w+)", ptx, re.M)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w") as file:
            file.write(ptx)
        tool = _tool("ptxas_blackwell" if target.gpu.arch >= 100 else "ptxas")
        command = [tool, "-v", f"--gpu-name={arch[1] if arch else target.name}", path, "-o", f"{path}.o"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    stores = re.findall(r"(\d+) bytes spill stores", text)
    return sum(map(int, stores)) if stores else None


@cache
def _tool(name: str) -> str:
    return getattr(triton.knobs.nvidia, name).path


def _amd_resources(text: str) -> tuple[int | None, int | None]:
    found = re.findall(r"^\s+\.(vgpr_count|vgpr_spill_count|sgpr_spill_count):\s+(\d+)", text, re.M)
    count = {name: int(number) for name, number in found}
    if "vgpr_count" not in count:
        return None, None
    return count["vgpr_count"], count.get("vgpr_spill_count", 0) + count.get("sgpr_spill_count", 0)


def _compile(source: ASTSource, target: Target, options: dict[str, int]):
    if not target.nvidia:
        _rehearse(source, target, options)
    return triton.compile(source, target=target.gpu, options=options)


def _rehearse(source: ASTSource, target: Target, options: dict[str, int]) -> None:
    """Compile in a child first: on inline asm that it cannot parse, the in-process assembler ends the process. The
    parent then finds the child's result in Triton's cache. RuntimeError if the child died."""
    child = os.fork()
    if not child:
        code = 1
        try:
            triton.compile(source, target=target.gpu, options=options)
            code = 0
        except Exception:
            code = 0  # the parent meets the same exception and reports it
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the code generator ended its process")


@contextlib.contextmanager
def _overheard(lines: list[str]):
    """Catch what the compiler's C++ side writes to file descriptor 2, where Python cannot see it."""
    with tempfile.TemporaryFile("w+b") as file:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()
