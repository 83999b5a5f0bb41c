"""Which names an item gives to a text: where it parses what it declares, where it does not what it seems to.

Answered from the item alone, and for all items of one structure at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from chunkdsl.diagnostics import Report
from chunkdsl.editor.lint import tree_again
from chunkdsl.editor.memory import remember
from chunkdsl.editor.segments import Segment, declares, segments, words
from chunkdsl.editor.structure import shape_of, structure_of, tokens
from chunkdsl.lower.names import LOST, LOST_MESH
from chunkdsl.source import Source
from chunkdsl.syntax.items import cut
from chunkdsl.syntax.parse import grammar, parse

_KINDS = {"mesh": "axis", "use": "plan"}
_known: dict[Hashable, bool] = {}
_MOST = 4096  # structures


@remember
def stands(text: str) -> bool:
    """Whether an item parses, so that it declares its names."""
    structure = structure_of([shape_of(text)], "")
    if structure not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[structure] = bool(parse(Source("", text), Report(Source("", text)), tree_again).items)
    return _known[structure]


@remember
def gives(text: str) -> frozenset[str]:
    """The names whose uses an item may have something to do with."""
    lost = frozenset(name for piece in _pieces(text) for groups in LOST.findall(piece) for name in groups if name)
    return declares(text) if lost <= declares(text) or stands(text) else declares(text) | lost


@remember
def looks_like_mesh(text: str) -> bool:
    """Whether an item is something of which a mesh may have been meant."""
    return any(LOST_MESH.search(piece) for piece in _pieces(text))


def names_of(parts: Sequence[Segment], declaring: Mapping[str, Sequence[int]], kind: str) -> Iterable[str]:
    """The names of a kind that a text declares. `declaring`: which of its items seem to declare a name, in order."""
    for i, part in enumerate(parts):
        if _KINDS.get(word := shape_of(part.text).kind, word) != kind:
            continue
        for name in declares(part.text):
            rivals = (j for j in declaring[name] if (shape_of(parts[j].text).kind == "policy") == (kind == "policy"))
            if next((j for j in rivals if stands(parts[j].text)), None) == i:
                yield name


def warm(text: str, watch: Callable[[], object]) -> None:
    """Parse every item of a text, as far as it was not, and what only mistakes need. `watch` may raise `Stale`."""
    grammar()
    for part in segments(text):
        watch()
        tree_again(part.text, 0)
        stands(part.text)
        words(part.text)
        tokens(part.text)


def _pieces(text: str) -> list[str]:
    return [text[span.start : span.end] for span in cut(text)[1]]
