"""Answers about texts, remembered: bounded by the length of the texts, not by their number.

While one types in an op of 10,000 characters, every keystroke makes another text of that length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
LONGEST = 1_000_000  # code points in all: a large file twenty times over


class Remembered(Generic[Answer]):
    """A function of a text that keeps its latest answers, for as many texts as have `longest` code points together.
    The longest text by itself is kept too. May be called by several threads."""

    def __init__(self, function: Callable[[str], Answer], longest: int = LONGEST) -> None:
        self._function, self._longest, self._length = function, longest, 0
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._lock = Lock()
        self.__doc__ = function.__doc__

    def __call__(self, text: str) -> Answer:
        try:
            found = self._answers[text]
            self._answers.move_to_end(text)
            return found
        except KeyError:  # not known, or another thread has just dropped it
            pass
        answer = self._function(text)
        with self._lock:
            if text not in self._answers:
                self._answers[text] = answer
                self._length += len(text)
            while self._length > self._longest and len(self._answers) > 1:
                self._length -= len(self._answers.popitem(last=False)[0])
        return answer


def remember(function: Callable[[str], Answer]) -> Remembered[Answer]:
    """Decorates a function of a text whose answer never changes."""
    return Remembered(function)
