"""Switches Triton to the interpreter for the length of a `with` block and back, whatever happens inside.

Everything that is replaced (language builtins, calls of jit functions, the interpreter's builder) is put back on
exit, so ahead-of-time compilation works before and after; it does not work inside the block. Blocks do not nest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import triton
import triton.compiler.code_generator  # before anything is replaced: it keeps what `min` and `max` mean
import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.runtime.jit import JITFunction

from chunkdsl.interp import libdevice
from chunkdsl.interp.arguments import bind
from chunkdsl.interp.arithmetic import reduce_in_float32
from chunkdsl.interp.builder import Builder
from chunkdsl.interp.memory import Memory
from chunkdsl.interp.rewrite import rewritten
from chunkdsl.interp.speed import Semantic, install


@dataclass(frozen=True)
class Interpreter:
    """The interpreter while it is switched on."""

    builder: Builder

    def run(self, kernel, grid: tuple[int, ...], **arguments) -> None:
        """Run a whole grid on this thread, x fastest, each program to its end before the next starts."""
        function, bound = bind(kernel, arguments)
        nx, ny, nz = (*grid, 1, 1)[:3]
        for z in range(nz):
            for y in range(ny):
                for x in range(nx):
                    self.builder.place((nx, ny, nz), (x, y, z))
                    function(**bound)


_active = False


@contextmanager
def interpreting(memory: Memory | None = None, builder: Builder | None = None) -> Iterator[Interpreter]:
    """Interpret `@triton.jit` functions inside the block; every access goes by `memory`. `builder`: another one than
    the interpreter's own, which has the memory.

    Raises RuntimeError if a block is open already."""
    global _active
    if _active:
        raise RuntimeError("interpreting() blocks do not nest")
    builder = builder or Builder(memory or Memory())
    changes = upstream._LangPatchScope()
    _active = True
    try:
        with triton.knobs.runtime.scope(), np.errstate(all="ignore"):
            triton.knobs.runtime.interpret = True
            _install(changes, builder)
            yield Interpreter(builder)
    finally:
        _restore(changes)
        _active = False


def _install(changes, builder: Builder) -> None:
    set_attr = changes.set_attr
    set_attr(upstream, "interpreter_builder", builder)
    set_attr(upstream, "interpreter_semantic", Semantic(builder))
    # Triton 3.6 makes a semantic of its own for each builtin.
    set_attr(upstream, "TritonSemantic", lambda _: upstream.interpreter_semantic)
    install(changes)
    libdevice.install(changes)
    for obj, name, value in _language():
        set_attr(obj, name, value)
    set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))
    for operations in (upstream.ReduceOps, upstream.ScanOps):
        set_attr(operations, "apply_impl", reduce_in_float32(operations.apply_impl))
    for function in (JITFunction, upstream.InterpretedFunction):
        call = lambda self, *args, **kwargs: rewritten(self.fn, builder.form, self)(*args, **kwargs)  # noqa: E731
        set_attr(function, "__call__", call)
    builder.install(set_attr)


@cache
def _language() -> list[tuple[object, str, object]]:
    """What upstream replaces for what a kernel's globals mention. It looks through all of Triton's language, again at
    each device call; once is enough, as nothing that it puts there depends on the builder."""
    scope = upstream._patch_lang(_Everything)
    places = {(id(obj), name): (obj, name) for obj, name, _ in scope._changes}
    found = [(obj, name, vars(obj)[name]) for obj, name in places.values()]
    scope.restore()
    return found


class _Everything:
    __globals__ = {"tl": tl, "core": tl.core}  # noqa: RUF012 (read by upstream as a function's globals)


def _restore(changes) -> None:
    changes.restore()
