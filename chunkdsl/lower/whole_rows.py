"""Statements that need whole rows (`rms_norm` and its gradient): in which launch they run, and on which tile.

They join the tiles of a launch without products whose value stays on this rank: these can be as wide as a row, so that
a norm costs no pass over memory beside the statement that it stands in. Elsewhere a norm, or what it normalises, is
stored first, as an operand of `@` is. Rows of a run-time length are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.ir.graph import Value
from chunkdsl.lower.choices import rows_tiling, whole_rows_tiling
from chunkdsl.lower.facts import POINTWISE, ROWWISE, Facts
from chunkdsl.plan.schedule import Tiling

LONGEST_ROW = 16_384  # elements: 32 a thread of 16 warps; a norm's gradient holds four such rows in registers


class WholeRows(Facts):
    def _place_norms(self, value: Value, name: str, here: bool) -> None:
        """Store what cannot be computed in the tiles of `value`. `here`: they store on this rank."""
        for norm in list(self._norms(value)):
            for arg in norm.args:
                if self._multiplies(arg):
                    self._place(arg, f"{name}_rows")
        apart = not here or self._multiplies(value)
        while norm := next((n for n in self._norms(value) if apart or n.type.shape != value.type.shape), None):
            self._place(norm, f"{name}_norm")

    def _norms(self, value: Value) -> Iterator[Value]:
        """Those in the tree of a statement that lie nowhere yet, outer ones first."""
        if value in self.places:
            return
        if value.kind in ROWWISE:
            yield value
        if value.kind in POINTWISE or value.kind in ROWWISE:
            for a in value.args:
                yield from self._norms(a)

    def _multiplies(self, value: Value) -> bool:
        return any(v.kind == "matmul" for v in self._leaves(value, {}))

    def _rows_tiling(self, value: Value) -> Tiling:
        """The tile of a launch without products."""
        norm = next(self._norms(value), None)
        if norm is None:
            return rows_tiling()
        cols = self._cols(value).size
        if not isinstance(cols, int):
            self._refuse("rms_norm of rows of a run-time length", "fix the length", norm.span)
        if cols > LONGEST_ROW:
            self._refuse(f"rms_norm of rows of more than {LONGEST_ROW} elements", "normalise outside the op", norm.span)
        return whole_rows_tiling(cols)
