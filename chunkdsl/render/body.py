"""What templates read of a launch whose tiles are a user's kernel: its arguments, and how it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from chunkdsl.ir.types import dims_in, evaluate
from chunkdsl.kernels.loops import MANY
from chunkdsl.kernels.rewrite import PARAMETERS
from chunkdsl.plan.body import BodyScalar, BodyTensor, Turn
from chunkdsl.plan.schedule import Extent, Launch
from chunkdsl.render.units import in_elements, slot_rows, vector_of


class BodyView:
    """`held(source)` is the wrapper's expression for a tensor; `pitched` the sources with padded rows; `sites` the
    places of the waits for gathered arguments, by flags."""

    def __init__(self, launch: Launch, held, pitched: frozenset[str], dim_text, sites: Mapping[str, int]) -> None:
        self.sites = sites
        self.launch, self.body, self.held, self.pitched = launch, launch.body, held, pitched
        self.extents: Mapping[str, Extent] = dict(self.body.sizes)
        self.dim_text = dim_text
        self.result = self.body.results[0]
        self.by_parameter = {t.parameter: t for t in self.body.tensors}
        self.fixed = {n: e.size for n, e in self.extents.items() if isinstance(e.size, int) and not e.sharded}

    def extent_text(self, extent: Extent) -> str:
        """Elements that this rank holds."""
        text = self.dim_text(extent.size, "dims")
        return f"shard_rows({text}, W, rank)" if extent.sharded else text

    # ---- the wrapper's side

    @property
    def sizes(self) -> str:
        """The kernel's own sizes on this rank, and the constants that its grid names, as a dict."""
        named = set().union(*(dims_in(g) for g in self.body.grid)) - self.extents.keys()
        pairs = [(n, self.extent_text(e)) for n, e in self.extents.items()]
        pairs += [(n, str(v)) for n, v in self.body.constants if n in named]
        return f"dict({', '.join(f'{n}={text}' for n, text in pairs)})"

    @property
    def grid(self) -> str:
        """Of the untouched kernel."""
        return f"({', '.join(self.dim_text(g, 'sizes') for g in self.body.grid)},)"

    @property
    def columns(self) -> str:
        b = self.body
        if not b.block:
            return "math.prod(grid)"
        heads = f'max(1, cdiv(sizes["{b.row}"], {b.block}))'
        if b.columns:
            last = self.result.shape[-1]
            return f"cdiv({self.extent_text(last)}, {b.columns})"
        return f"math.prod(grid) // {heads}"

    @property
    def group(self) -> int:
        """Row blocks of a shard that are visited column by column before the next: as the kernel's author has it, and
        8 where that is every row or groups of columns, so that what arrives first is done first."""
        _, group, across, _ = self.body.order
        return 8 if across or not group else group

    @property
    def describes(self) -> bool:
        """Does the kernel make tensor descriptors, or take them?"""
        made = any("tensor_descriptor" in text for _, text in self.body.untouched)
        return made or any(t.block for t in self.body.tensors)

    @property
    def spread(self) -> str:
        """The grid over which programs are numbered."""
        if self.body.step:
            return f'(cdiv(sizes["{self.body.row}"], {max(1, self.body.block)}) * columns, 1, 1)'
        return "(*grid, 1, 1)"

    @property
    def even(self) -> str:
        """Whether rows of what programs carry are whole pieces of 16 bytes, as a constant."""
        texts = [f"{self.extent_text(m.cols)} % 8 == 0" for m in self.launch.moves]
        return " and ".join(dict.fromkeys(texts)) or "True"

    def host(self, s: BodyScalar, held: Mapping[str, str] | None = None) -> str:
        """The wrapper's expression for a scalar. `held`: expressions of the tensors, by parameter."""
        if s.stride is None:
            return self.dim_text(s.value, "sizes") if dims_like(s.value) else repr(s.value)
        t = self.by_parameter[s.stride[0]]
        return f"{held[t.parameter] if held else self.tensor(t, False)}.stride({s.stride[1]})"

    def tensor(self, t: BodyTensor, exact: bool) -> str:
        d = self.launch.destination
        if t is self.result:
            if d.kind != "local":
                return f"exact_{d.buffer}"
            return f"self._{d.buffer}" if d.buffer in self.pitched else f"{d.buffer}_"
        if t.gathered and not exact:
            return f"self._{t.source}.local"
        return self.held(t.source)

    @property
    def untouched(self) -> Iterator[tuple[str, str]]:
        """(parameter, expression) of the untouched kernel's launch in `exact`."""
        return self.untouched_with({t.parameter: self.tensor(t, True) for t in self.body.tensors})

    def untouched_with(self, held: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The same with other tensors."""
        for t in self.body.tensors:
            sizes = ", ".join(self.dim_text(d, "sizes") for d in t.dims)
            text = held[t.parameter]
            yield t.parameter, f"described({text}, [{sizes}], {self.body.block_of(t)})" if t.block else text
        for s in self.body.scalars:
            yield s.parameter, self.host(s, held)
        for name, value in self.body.constants:
            yield name, repr(value)

    def tickets(self, device: bool) -> str:
        """How many a shard has: programs of a block, times the blocks that may begin in it."""
        many, blocks = "max(1, columns)", 'cdiv(shard, constants["BM"])'
        if device:
            many, blocks = "tl.maximum(per_block, 1)", "tl.cdiv(shard, BM)"
        return f"{many} * {blocks}" if self.body.block else many

    def plain_results(self, parts: str) -> list[tuple[str, BodyTensor, str]]:
        """(name, tensor, columns to allocate) of the results in the fallback. `parts`: the buffer of partial sums, if
        the first is one. Rows are whole multiples of 16 bytes for a descriptor."""
        found = []
        for t in self.body.results:
            sent = t is self.result and self.launch.destination.kind != "local"
            cols = self.extent_text(t.shape[-1])
            wide = f"round_up(max(1, {cols}), {vector_of(t.dtype)})" if t.block else cols
            found.append((f"{parts}_plain" if sent else f"{t.source}_", t, wide))
        return found

    def plain(self, parts: str) -> list[tuple[str, str]]:
        """The untouched kernel's arguments in the fallback: its strides are those of the tensors at hand."""
        held = {t.parameter: name for name, t, _ in self.plain_results(parts)}
        for t in self.body.tensors:
            text = self.held(t.source)
            text = text if text.startswith("at_") else f"{t.source}_"
            text = f"{text}.contiguous()"
            held.setdefault(t.parameter, f"even_rows({text})" if t.block else text)
        return list(self.untouched_with(held))

    def arguments(self) -> Iterator[tuple[str, str, bool]]:
        """(name, expression, is an integer) of what the launch passes beside the destination."""
        for t in self.body.tensors:
            if t is not self.result:
                yield f"k_{t.parameter}", self.tensor(t, False), False
            if t.gathered:
                yield f"k_{t.parameter}_pitch", f"pitch_of({self.tensor(t, False)})", True
                yield f"k_{t.parameter}_cap", slot_rows(), True
        for s in self.integers():
            if self.runtime(s):
                yield f"k_{s.parameter}", self.host(s), not self.steady(s)
        for s in self.body.scalars:
            if self.known(s):
                yield f"k_{s.parameter}", self.literal(s), False
        yield "per_block", "columns", True
        for i, axis in enumerate("xyz"):
            yield f"grid_{axis}", f"spread[{i}]", True

    # ---- the kernel's side

    def integers(self) -> tuple[BodyScalar, ...]:
        return (*self.body.scalars, *self.extents_of_descriptors())

    def extents_of_descriptors(self) -> Iterator[BodyScalar]:
        """Sizes and strides of tensors for which the launch makes the descriptors that the kernel takes."""
        for t in self.body.tensors:
            if t.block:
                yield from (BodyScalar(f"size{i}_of_{t.parameter}", d) for i, d in enumerate(t.dims))
                yield from (BodyScalar(f"step{i}_of_{t.parameter}", 0, (t.parameter, i)) for i in range(len(t.dims)))

    @property
    def descriptors(self) -> list[tuple[str, str, str]]:
        """(name, memory, what of it) of the descriptors that the kernel takes. Each program of the launch makes them
        once: which slot of a communication buffer is meant is known in device memory alone."""
        texts = {s.parameter: self.scalar(s) for s in self.extents_of_descriptors()}
        found = []
        for t in self.body.tensors:
            if t.block:
                sizes, steps = (
                    ", ".join(texts[f"{what}{i}_of_{t.parameter}"] for i in range(len(t.dims)))
                    for what in ("size", "step")
                )
                what = f"shape=[{sizes}],\n        strides=[{steps}],\n        block_shape={self.body.block_of(t)},"
                found.append((f"described_{t.parameter}", self.pointer(t), what))
        return found

    @property
    def axes(self) -> list[int]:
        """Those of the grid, in the order in which its programs are numbered."""
        return [axis for axis in self.body.order[0] if axis < (1 if self.body.step else len(self.body.grid))]

    @property
    def by_id(self) -> bool:
        """Is a program's number its tile? Where no other rank waits for a tile, directly or through programs that carry
        chunks, the launch may start a program for each, as the kernel alone does, and needs no tickets. Descriptors
        are made once for many tiles."""
        n = self.launch
        return n.destination.kind == "local" and all(not m.programs for m in n.moves) and not self.descriptors

    @property
    def awaited(self) -> list[tuple[str, str, str]]:
        """(shard, chunk of it, end) of the global rows that a program waits for, from that chunk on."""
        fetched, none = self.body.fetched, "tl.full((), 0, tl.int32)"
        if self.body.turns:
            return []
        if not self.body.block or fetched.gathered == "whole":
            return [(none, none, "shard * W")]
        spans = [("owner", "(row - low) // chunk", "last + 1")]
        if fetched.gathered == "wrap":  # the last block's surplus rows are the first ones; none if there is no surplus
            spans.append((none, none, "tl.minimum(row + BM - height, height)"))
        return spans

    @property
    def call(self) -> str:
        """Arguments of the rewritten kernel: program ids, numbers of programs, then its own, in order."""
        ids = ["program_0", "program_1", "program_2", "grid_x", "grid_y", "grid_z"]
        if self.body.step:
            ids[3] = str(MANY)
        given = {name: repr(value) for name, value in self.body.constants}
        if self.body.step in given:
            given[self.body.step] = str(MANY)
        given |= {t.parameter: self.argument(t) for t in self.body.tensors}
        given |= {s.parameter: as_launched(self.scalar(s)) for s in self.body.scalars}
        ids = ids[: len(PARAMETERS)]
        if self.body.turns:
            ids.append(f"({self.arrivals})")
        named = [f"{name}={given[name]}" for name in self.body.parameters if name in given]
        return ", ".join([*ids, *named])

    @property
    def arrivals(self) -> str:
        """What a loop's waits need (`runtime.turns`); of several loops a tuple for each."""
        made = [self.arrivals_of(turn) for turn in self.body.turns]
        return made[0] if len(made) == 1 else ", ".join(f"({text})" for text in made)

    def arrivals_of(self, turn: Turn) -> str:
        names = self.body.arriving_in(turn)
        flags, sites = ", ".join(names), ", ".join(str(self.sites[name]) for name in names)
        wait = f"({flags},), epoch, ({sites},), state, state_peers, record, limit, W, NVIDIA, TMA"
        return f"{wait}, rank, shard, chunk, chunk_cap, rows, {turn.lead}, {turn.each}"

    def argument(self, t: BodyTensor) -> str:
        return f"described_{t.parameter}" if t.block else self.pointer(t)

    def pointer(self, t: BodyTensor) -> str:
        if t.gathered:
            name = f"k_{t.parameter}"
            return f"{name} + slot * {name}_cap * ({in_elements(f'{name}_pitch', t.dtype)})"
        if t is not self.result:
            return f"k_{t.parameter}"
        if self.launch.destination.kind == "publish":
            return f"out + slot * out_cap * ({in_elements('out_pitch', t.dtype)})"
        return "out"

    def scalar(self, s: BodyScalar) -> str:
        return f"k_{s.parameter}" if self.runtime(s) or self.known(s) else self.literal(s)

    def literal(self, s: BodyScalar) -> str:
        if s.stride is None:
            fixed = evaluate(s.value, self.fixed) if dims_like(s.value) else s.value
            return repr(fixed)
        t, index = self.by_parameter[s.stride[0]], s.stride[1]
        if index == len(t.shape) - 1:
            return "1"
        if t.gathered:
            return in_elements(f"k_{t.parameter}_pitch", t.dtype)
        if t is self.result and (self.launch.destination.kind != "local" or t.source in self.pitched):
            return in_elements("out_pitch", t.dtype)
        length = 1
        for e in t.shape[index + 1 :]:
            length *= e.size
        return str(length)

    def runtime(self, s: BodyScalar) -> bool:
        """Must the launch pass it? Else it is written into the call."""
        if s.stride is None:
            return dims_like(s.value) and not dims_in(s.value) <= self.fixed.keys()
        t, index = self.by_parameter[s.stride[0]], s.stride[1]
        if index == len(t.shape) - 1 or t.gathered:
            return False
        if t is self.result and self.launch.destination.kind != "local":
            return False
        if t.source in self.pitched:
            return t is not self.result
        return not all(isinstance(e.size, int) and not e.sharded for e in t.shape[index + 1 :])

    def known(self, s: BodyScalar) -> bool:
        """Is it a number that the spec fixes, and that the launch passes all the same, as the kernel's author does?
        With the number written into the call, and a bound on registers, the compiler makes another loop, on the H200
        one that is 12 % slower. Around tickets registers are short, and numbers take none: there they are written."""
        if self.runtime(s) or s not in self.body.scalars or not self.by_id:
            return False
        text = self.literal(s)
        return text.isdecimal() and text != "1" and not (s.stride is None and isinstance(s.value, bool | float | str))

    def steady(self, s: BodyScalar) -> bool:
        """Is it the same in every call on this rank? Triton may look at it then: the binary that it makes for a 1 or a
        multiple of 16 is the one that construction has loaded."""
        if s.stride is None:
            return all(isinstance(self.extents[n].size, int) for n in dims_in(s.value))
        t = self.by_parameter[s.stride[0]]
        return all(isinstance(e.size, int) for e in t.shape[s.stride[1] + 1 :])


def as_launched(text: str) -> str:
    """A number in a call within a kernel, as its parameter has it when it is launched alone: a tensor, of which authors
    write `n.to(tl.int64)`, but for a 1, which Triton makes a constant of."""
    try:
        value = ast.literal_eval(text)
    except ValueError:
        return text
    if isinstance(value, str) or (value == 1 and type(value) is int):
        return text
    wide = "int64" if isinstance(value, int) and not -(2**31) <= value < 2**31 else "int32"
    kind = "int1" if isinstance(value, bool) else "float32" if isinstance(value, float) else wide
    return f"tl.full((), {text}, tl.{kind})"


def dims_like(value) -> bool:
    """Is it a size (not a number of another kind, or a text)?"""
    return not isinstance(value, bool | float | str)
