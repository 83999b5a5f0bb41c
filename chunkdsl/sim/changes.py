"""When which polled word changed last: who polls others need not look again.

Counts only; what a word holds is the buffers' business.
"""

from __future__ import annotations

Polled = tuple[int, int, bool]  # a buffer's base, an offset in it, and whether more than that word is read


class Changes:
    """`count`: changes of polled memory so far."""

    def __init__(self) -> None:
        self.count = 0
        self._words: dict[tuple[int, int], int] = {}
        self._buffers: dict[int, int] = {}  # whatever in it changed
        self._rewritten: dict[int, int] = {}  # by accesses that do not say which words

    def word(self, base: int, offset: int) -> None:
        """The word at `offset` of the buffer at `base` holds something else."""
        self.count += 1
        self._words[base, offset] = self._buffers[base] = self.count

    def buffer(self, base: int) -> None:
        """Any words of a buffer may hold something else."""
        self.count += 1
        self._rewritten[base] = self._buffers[base] = self.count

    def last(self, key: Polled) -> int:
        """The count at the last change of what `key` names; 0 before any."""
        base, offset, wide = key
        if wide:
            return self._buffers.get(base, 0)
        return max(self._words.get((base, offset), 0), self._rewritten.get(base, 0))
