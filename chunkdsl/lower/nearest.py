"""The nearest known names to a misspelt one. An index of names with letters left out: no scan over all names.

Method: symmetric delete (Garbe's SymSpell): two words at edit distance d share a word reached by at most d deletions
from each. Letter case never counts as an edit.
"""

from __future__ import annotations

from collections.abc import Iterable


class Nearest:
    """Names to look up in. An index is built at the first look-up that needs it: most files have no misspelt name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: Iterable[str] = names
        self._indexes: dict[int, dict[str, list[str]]] = {}  # by the number of letters left out
        self._answers: dict[str, tuple[str, ...]] = {}

    def of(self, word: str) -> tuple[str, ...]:
        """Known names nearest to `word`, all at the same smallest distance, in order of the alphabet; at most three."""
        if word not in self._answers:
            self._answers[word] = self._find(word)
        return self._answers[word]

    def _find(self, word: str) -> tuple[str, ...]:
        for reach in range(_reach(word) + 1):  # most slips are one edit: the smaller index answers them
            close: dict[int, set[str]] = {}
            for short in _deletions(word.lower(), reach):
                for name in self._index(reach).get(short, ()):
                    if name != word:
                        close.setdefault(distance(word.lower(), name.lower()), set()).add(name)
            if close and min(close) <= reach:
                return tuple(sorted(close[min(close)])[:3])
        return ()

    def _index(self, letters: int) -> dict[str, list[str]]:
        if letters not in self._indexes:
            self._names = tuple(dict.fromkeys(self._names))  # names may come from a generator, read once
            index = self._indexes[letters] = {}
            for name in self._names:
                for short in _deletions(name.lower(), letters):
                    index.setdefault(short, []).append(name)
        return self._indexes[letters]


def distance(a: str, b: str) -> int:
    """Edit distance with exchanges of neighbours (optimal string alignment)."""
    before, row = [], list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _reach(word: str) -> int:
    """Edits that still look like a slip: none in one letter (case apart), one in a short word, two in a long one."""
    return 0 if len(word) < 2 else 1 if len(word) < 6 else 2


def _deletions(word: str, letters: int) -> set[str]:
    """`word` with up to so many letters left out (none in very long words)."""
    found = {word}
    for _ in range(letters if len(word) <= 40 else 0):
        found |= {w[:i] + w[i + 1 :] for w in found for i in range(len(w))}
    return found
