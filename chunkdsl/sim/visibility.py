"""Stores that other ranks see later: what a program writes into another rank's memory waits here, in pieces, and comes
out in any order that its fences allow.

All pieces of a program are out before a release or a fence of that program, and when it ends. Atomics that return a
value, and flags, are never held back; neither are a rank's stores to its own memory. Source: the PTX memory model,
which orders weak and relaxed stores to different places by nothing else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from chunkdsl.sim.accesses import Accesses
from chunkdsl.sim.actors import Program

PIECES = 4  # of one store: its words need not arrive together


@dataclass(eq=False)
class Piece:
    """Bytes [n, itemsize] on their way to `addresses` [n]."""

    program: Program
    addresses: np.ndarray
    values: np.ndarray


class Visibility:
    """The stores under way in a world."""

    def __init__(self, accesses: Accesses, random: random.Random) -> None:
        self._accesses, self._random = accesses, random
        self._pieces: list[Piece] = []

    def keep(self, program: Program, addresses: np.ndarray, mask: np.ndarray, data: np.ndarray) -> bool:
        """Hold back a store to another rank's symmetric memory. False if it is none: then it is made at once."""
        chosen = addresses[mask]
        buffer = self._accesses.space.find(int(chosen[0])) if chosen.size > 1 else None
        if buffer is None or buffer.owner == program.rank or buffer.kind != "symmetric":
            return False
        values = np.ascontiguousarray(np.broadcast_to(data, addresses.shape)[mask])
        raw = values.view(np.uint8).reshape(len(chosen), -1)
        order = list(range(len(chosen)))
        self._random.shuffle(order)
        for part in np.array_split(np.array(order), min(PIECES, len(order))):
            self._pieces.append(Piece(program, chosen[part], raw[part]))
        return True

    def flush(self, programs: list[Program]) -> None:
        """All stores of these programs are visible now."""
        mine = [p for p in self._pieces if p.program in programs]
        self._pieces = [p for p in self._pieces if p.program not in programs]
        for piece in mine:
            self._arrive(piece)

    def some(self) -> bool:
        """One piece, drawn by chance, becomes visible; False if there is none."""
        if not self._pieces:
            return False
        self._arrive(self._pieces.pop(self._random.randrange(len(self._pieces))))
        return True

    def _arrive(self, piece: Piece) -> None:
        buffer = self._accesses.space.find(int(piece.addresses[0]))
        at = (piece.addresses - np.uint64(buffer.base)).astype(np.int64)
        buffer.bytes[at[:, None] + np.arange(piece.values.shape[1])] = piece.values
        self._accesses.touch(buffer, [])
