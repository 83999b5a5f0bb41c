"""What the wrapper says of products that the library computes: which rows and columns of which tensors a call has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chunkdsl.plan.schedule import Buffer, Launch, Operand

ROWS = {"padded": "owner * stride", "plain": "owner * shard", "own": "0"}  # where shard `owner` begins, by layout


class LibraryView:
    """`tensor(operand)` is the wrapper's expression for an operand."""

    def __init__(self, launch: Launch, buffers: Mapping[str, Buffer], tensor: Callable[[Operand], str]) -> None:
        self.launch, self.buffers = launch, buffers
        self.chunk = launch.chunk if launch.chunk_flags else launch.out_chunk
        self.product, d = launch.products[0], launch.destination
        self.left, self.right = tensor(launch.a), tensor(self.product.b)
        self.transposed = self.product.b.transposed
        name, picked, rest = d.buffer.partition("[")
        self.result = f"self._{d.buffer}" if d.buffer in buffers else f"{name}_{picked}{rest}"
        self.sends = d.kind == "hand_over"
        if self.right_source in buffers:  # at its bounds, and with padded rows
            self.right += "[:n, :depth]" if self.transposed else "[:depth, :n]"

    @property
    def right_source(self) -> str:
        return self.product.b.source

    @property
    def left_begin(self) -> str:
        return ROWS[self.launch.a.layout]

    @property
    def result_begin(self) -> str:
        return ROWS[self.launch.destination.layout]

    @property
    def left_columns(self) -> str:
        return ", :depth" if self.launch.a.source in self.buffers else ""

    @property
    def result_columns(self) -> str:
        return ", :n" if self.launch.destination.buffer in self.buffers else ""
