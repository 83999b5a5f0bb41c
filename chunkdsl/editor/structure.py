"""What an item and all that it builds on are apart from the names in them: of equal ones, what is right is right alike.

A thousand ops of a generated spec differ in names alone. The stages look at one of each structure, and `Clean`
remembers which structures gave no finding. What a finding says holds names, so telling it of another item is a guess
(`carry.py`), and the last answer has each item looked at by itself.

Renamed are only dims, tensors, policies and ops, each to a number, in order of appearance, so that two structures are
equal exactly where one renaming turns one text into the other. A name stays as it is where its letters may matter: a
word of the language, one that Python or a module has taken, a key or an argument's name. Where a plan, a kernel or a
gradient takes part all names stay, and files that these read count with their time of change.
"""

from __future__ import annotations

import keyword
import os
import re
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import cache
from threading import Lock

from chunkdsl.editor.memory import remember
from chunkdsl.editor.reference import functions, keys, policies
from chunkdsl.editor.segments import declares
from chunkdsl.lower.calls import LATER, USAGE
from chunkdsl.lower.layouts import LAYOUTS
from chunkdsl.lower.names import ARGUMENTS_TAKEN, OP_NAMES_TAKEN
from chunkdsl.lower.policies import KEYS
from chunkdsl.lower.policy_values import BUILT, LATER_KEYS, PREDEFINED
from chunkdsl.lower.sizes import FUNCTIONS
from chunkdsl.lower.tensors import DTYPES
from chunkdsl.plan.hierarchical import TIERS
from chunkdsl.record import record
from chunkdsl.resources import read

MOST = 4096  # structures that are remembered
_PART = re.compile(r'"[^"\n]*"|#[^\n]*|[ \t\r\n]+|(?<!\w)[A-Za-z_]\w*|.', re.DOTALL)
_PINNED = re.compile(r"(?<!\w)([A-Za-z_]\w*)[ \t\r\n]*=|\.[ \t\r\n]*([A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*")
_FILE = re.compile(r'"([^"\n]*)"')
_RENAMED = ("dim", "tensor", "policy", "op")
_LITERAL = ("plan", "use", "kernel", "gradient")


@cache
def vocabulary() -> frozenset[str]:
    """Words that mean something by themselves."""
    texts = [read("grammars", "chunk.lark"), read("grammars", "extra.lark")]
    texts += [text for f in functions().values() for text in (f.name, *f.parameters)]
    texts += [text for k in keys().values() for text in (k.name, *k.values)]
    texts += [text for row in policies().items() for text in row]
    tables = (USAGE, LATER, LAYOUTS, OP_NAMES_TAKEN, ARGUMENTS_TAKEN, KEYS, LATER_KEYS, PREDEFINED, FUNCTIONS, DTYPES,
              TIERS, keyword.kwlist, keyword.softkwlist, *BUILT.values())
    return frozenset(_WORD.findall("\n".join(texts))).union(*tables)


@record
class Shape:
    """An item apart from names. `form`: its text without comments, blanks made one, and in place of each word which of
    `distinct` it is: its words in order, each once. `words`: all of them. `names`: those that it declares and that may
    be others. `stay`: those that may not. `kind`: the first."""

    text: str
    form: str
    words: tuple[str, ...]
    distinct: tuple[str, ...]
    names: frozenset[str]
    stay: frozenset[str]
    kind: str


@remember
def shape_of(text: str) -> Shape:
    rest, words = [], []
    numbers: dict[str, int] = {}
    for part in _PART.findall(text):
        if part[0] == "#":
            rest.append(" ")
        elif part[0] in " \t\r\n":  # behind a line's end, column one matters
            rest.append("\n" if part[-1] == "\n" else " ")
        elif part[0] == "_" or part[0].isalpha():
            rest.append(f"\0{numbers.setdefault(part, len(numbers))}\0")
            words.append(part)
        else:
            rest.append("\0-\0" if part == "\0" else part)
    form = re.sub(r"[ \n]*\n[ \n]*", "\n", re.sub(r" +", " ", "".join(rest))).rstrip()
    kind = words[0] if words else ""
    distinct = tuple(numbers)
    if kind not in _RENAMED:
        return Shape(text, form, tuple(words), distinct, frozenset(), frozenset(words), kind)
    named = declares(text)
    stay = {w for groups in _PINNED.findall(text) for w in groups} - (named if kind == "dim" else set())
    names = frozenset(n for n in named if _NAME.fullmatch(n)) - vocabulary()
    return Shape(text, form, tuple(words), distinct, names, frozenset(stay), kind)


@remember
def tokens(text: str) -> tuple[tuple[int, int], ...]:
    """Where words and marks of an item begin and end. Those of items of one structure correspond."""
    return tuple(m.span() for m in _PART.finditer(text) if m[0][0] not in "# \t\r\n")


def structure_of(shapes: Sequence[Shape], folder: str) -> Hashable:
    """Equal for items that differ in names only. `shapes`: an item and all that it builds on, in order; `folder`: that
    of the spec, for files that are read."""
    if any(s.kind in _LITERAL for s in shapes):
        texts = tuple(s.text for s in shapes)
        return texts, folder, _files(texts, folder)
    free = frozenset().union(*(s.names for s in shapes)).difference(*(s.stay for s in shapes))
    numbers: dict[str, int] = {}  # by first appearance
    found: list[object] = []
    for shape in shapes:
        found.append(shape.form)
        found += [numbers.setdefault(word, len(numbers)) if word in free else word for word in shape.distinct]
    return tuple(found)


def _files(texts: Sequence[str], folder: str) -> tuple:
    """What files that items name in strings were when they were looked at."""
    found = []
    for name in dict.fromkeys(n for text in texts for n in _FILE.findall(text)):
        try:
            status = os.stat(os.path.join(folder, name))
            found.append((name, status.st_mtime_ns, status.st_size))
        except (OSError, ValueError):
            found.append((name, 0, 0))
    return tuple(found)


class Clean:
    """Structures in which nothing was found, and the last stage that looked. May be used by several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._stages: OrderedDict[Hashable, int] = OrderedDict()
        self._most, self._lock = most, Lock()

    def stage(self, structure: Hashable) -> int:
        """The last stage that found nothing; -1 where none is known."""
        with self._lock:
            if structure in self._stages:
                self._stages.move_to_end(structure)
            return self._stages.get(structure, -1)

    def add(self, structure: Hashable, stage: int) -> None:
        with self._lock:
            self._stages[structure] = max(stage, self._stages.get(structure, -1))
            while len(self._stages) > self._most:
                self._stages.popitem(last=False)

    def forget(self) -> None:
        with self._lock:
            self._stages.clear()
