"""Inline assembly on the CPU: each PTX statement of a text is looked up by its mnemonic and emulated.

A text may hold several statements (`fence.proxy.async.global; mov.u32 $0, 0;`). `emulates` registers a handler
for all statements that match a regular expression. A statement that nobody emulates is an error that quotes it.
Registers, predicates and packed operands (`pack` > 1) are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

_HANDLERS: list[tuple[re.Pattern[str], Callable[[Statement, re.Match[str]], None]]] = []
_WHOLE: list[tuple[re.Pattern[str], Callable[[Statement], None]]] = []


class UnknownAssembly(Exception):
    """A statement of inline assembly has no CPU emulation."""


@dataclass
class Statement:
    """One statement under way: `builder` has the memory, `inputs` and `outputs` map operand numbers to arrays."""

    builder: object
    text: str
    inputs: dict[int, np.ndarray]
    outputs: dict[int, np.ndarray]

    def value(self, operand: str) -> np.ndarray:
        """The value of `$2`, or of a number written in the text."""
        operand = operand.strip().strip("[]")
        if operand.startswith("$"):
            return self.inputs[int(operand[1:])]
        return np.array([int(operand, 0)])

    def set(self, operand: str, value) -> None:
        """Assign to an output operand, in the output's dtype and shape."""
        out = self.outputs[int(operand.strip()[1:])]
        out[...] = np.broadcast_to(np.asarray(value), out.shape).astype(out.dtype)


def emulates(pattern: str):
    """Register a handler for statements that match `pattern` from their first to their last character."""

    def register(handler):
        _HANDLERS.append((re.compile(pattern), handler))
        return handler

    return register


def emulates_whole(pattern: str):
    """Register a handler for texts that `pattern` is found in, blanks folded: loops, which statement by statement would
    need registers and branches."""

    def register(handler):
        _WHOLE.append((re.compile(pattern), handler))
        return handler

    return register


def run(builder, text: str, constraints: str, values, types, pack: int) -> list:
    """Emulate one inline assembly text; returns one TensorHandle for each output."""
    if pack != 1:
        raise UnknownAssembly(f"inline assembly with pack = {pack} has no CPU emulation: {text!r}")
    count = sum(part.strip().startswith("=") for part in constraints.split(","))
    shape = np.broadcast_shapes(*(v.data.shape for v in values)) if values else (1,)
    dtypes = [upstream._get_np_dtype(t) for t in types]
    outputs = {i: np.zeros(shape, dtype) for i, dtype in enumerate(dtypes)}
    inputs = {count + i: v.data for i, v in enumerate(values)}
    folded = " ".join(text.split())
    for pattern, handler in _WHOLE:
        if pattern.search(folded):
            handler(Statement(builder, folded, inputs, outputs))
            return [upstream.TensorHandle(outputs[i], t.scalar) for i, t in enumerate(types)]
    for line in re.sub(r"//[^\n]*|/\*.*?\*/|[{}]", " ", text).split(";"):
        statement = " ".join(line.split())
        if statement:
            _dispatch(Statement(builder, statement, inputs, outputs))
    return [upstream.TensorHandle(outputs[i], t.scalar) for i, t in enumerate(types)]


def _dispatch(statement: Statement) -> None:
    for pattern, handler in _HANDLERS:
        found = pattern.fullmatch(statement.text)
        if found:
            handler(statement, found)
            return
    raise UnknownAssembly(
        f"no CPU emulation for the inline assembly statement {statement.text!r}: "
        "register one with chunkdsl.interp.assembly.emulates"
    )


@emulates(r"mov\.[usb](?:32|64) (\$\d+), (\$\d+|-?\w+)")
def _move(s: Statement, found: re.Match[str]) -> None:
    s.set(found[1], s.value(found[2]))


@emulates(r"mov\.u(?:32|64) (\$\d+), %globaltimer(?:_lo)?")
def _clock(s: Statement, found: re.Match[str]) -> None:
    s.set(found[1], np.array([s.builder.memory.clock()], dtype=np.uint64))


@emulates(r"nanosleep\.u32 (\$\d+|\d+)")
def _sleep(s: Statement, found: re.Match[str]) -> None:
    s.builder.memory.pause(int(s.value(found[1]).max()))


@emulates(r"fence\.proxy\.async(?:\.global)?")
def _proxy_fence(s: Statement, _: re.Match[str]) -> None:
    s.builder.memory.proxy_fence()


@emulates(r"cp\.async\.bulk\.wait_group(\.read)? 0")
def _bulk_wait(s: Statement, found: re.Match[str]) -> None:
    s.builder.memory.bulk_wait(complete=found[1] is None)


@emulates(r"cp\.async\.bulk\.commit_group")
def _commit(s: Statement, _: re.Match[str]) -> None:
    """Descriptor stores are counted as committed when they are issued."""


@emulates(r"(?:fence\.(?:acq_rel|sc)\.|membar\.)(gpu|gl|sys)")
def _fence(s: Statement, found: re.Match[str]) -> None:
    s.builder.memory.fence("sys" if found[1] == "sys" else "gpu")


@emulates(r"bar(?:rier)?\.sync 0")
def _barrier(s: Statement, _: re.Match[str]) -> None:
    s.builder.memory.barrier()


@emulates(r"trap")
def _trap(s: Statement, _: re.Match[str]) -> None:
    raise RuntimeError("the program executed trap")


_WIDTH = {"8": tl.int8, "16": tl.int16, "32": tl.int32, "64": tl.int64}


@emulates(r"ld\.(acquire|relaxed)\.(gpu|sys)(?:\.global)?\.[usb](32|64) (\$\d+), \[(\$\d+)\]")
def _load(s: Statement, found: re.Match[str]) -> None:
    s.set(found[4], s.builder.atomic_load(s.value(found[5]), _WIDTH[found[3]], found[1], found[2]))


@emulates(r"ld\.volatile(?:\.global)?\.[usb](32|64) (\$\d+), \[(\$\d+)\]")
def _load_volatile(s: Statement, found: re.Match[str]) -> None:
    s.set(found[2], s.builder.atomic_load(s.value(found[3]), _WIDTH[found[1]], "relaxed", "sys"))


@emulates(r"st\.(release|relaxed)\.(gpu|sys)(?:\.global)?\.[usb](32|64) \[(\$\d+)\], (\$\d+|-?\d+)")
def _store(s: Statement, found: re.Match[str]) -> None:
    s.builder.atomic_store(s.value(found[4]), s.value(found[5]), _WIDTH[found[3]], found[1], found[2])


@emulates(r"st\.relaxed\.sys\.global\.v[24]\.u(32|64) \[(\$\d+)\], ((?:\$\d+,? ?)+)")
def _store_vector(s: Statement, found: re.Match[str]) -> None:
    """As many stores as words, in no promised order."""
    for i, word in enumerate(found[3].split(",")):
        place = s.value(found[2]) + i * int(found[1]) // 8
        s.builder.atomic_store(place, s.value(word), _WIDTH[found[1]], "relaxed", "sys")


@emulates(r"griddepcontrol\.(?:wait|launch_dependents)")
def _early_start(s: Statement, _: re.Match[str]) -> None:
    """Kernels start here when those ahead of them have ended."""
