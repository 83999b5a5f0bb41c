"""The nearest known names to a misspelt one. An index of names with letters left out: no scan over all names.

Method: symmetric delete (Garbe's SymSpell): two words at edit distance d share a word reached by at most d deletions
from each. Letter case never counts as an edit.
"""

from __future__ import annotations

from collections.abc import Iterable


class Nearest:
    """Names to look up in. Building is put off to the first look-up, as most files have no misspelt name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._index: dict[str, list[str]] | None = None
        self._answers: dict[str, tuple[str, ...]] = {}

    def of(self, word: str) -> tuple[str, ...]:
        """Known names nearest to `word`, all at the same smallest distance, in order of the alphabet; at most three."""
        if word not in self._answers:
            self._answers[word] = self._find(word)
        return self._answers[word]

    def _find(self, word: str) -> tuple[str, ...]:
        if self._index is None:
            self._index = {}
            for name in dict.fromkeys(self._names):
                for short in _deletions(name.lower()):
                    self._index.setdefault(short, []).append(name)
        found: dict[str, int] = {}
        for short in _deletions(word.lower()):
            for name in self._index.get(short, ()):
                if name != word and name not in found:
                    found[name] = distance(word.lower(), name.lower())
        reach = _reach(word)
        close = {name: d for name, d in found.items() if d <= reach}
        best = [name for name, d in close.items() if d == min(close.values())]
        return tuple(sorted(best)[:3])


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


def _deletions(word: str) -> set[str]:
    """`word` with up to two letters left out (one in short words, none in very long ones)."""
    found = {word}
    if len(word) > 40:
        return found
    for _ in range(2 if len(word) >= 5 else 1):
        found |= {w[:i] + w[i + 1 :] for w in found for i in range(len(w))}
    return found
