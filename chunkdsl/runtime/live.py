"""The ops of all instances by number: what an operator call and a saved graph hold. Copied into the module."""

from __future__ import annotations

import itertools
import weakref
from typing import ClassVar


class Live:
    """Operations by number. A graph holds the number: it keeps no instance alive, and says so when it is gone."""

    COUNT: ClassVar = itertools.count(1)
    OPERATIONS: ClassVar = weakref.WeakValueDictionary()

    @classmethod
    def add(cls, operation):
        number = next(cls.COUNT)
        cls.OPERATIONS[number] = operation
        return number

    @classmethod
    def find(cls, number):
        """RuntimeError if the instance has been collected."""
        operation = cls.OPERATIONS.get(number)
        if operation is None:
            raise RuntimeError("the instance that this graph was made with is gone; keep it as long as the graph")
        return operation
