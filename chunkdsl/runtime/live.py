"""The ops of all instances by number: what an operator call and a saved graph hold. Copied into the module."""

from __future__ import annotations

import itertools
import os
import weakref
from typing import ClassVar


class Live:
    """Operations by number. A graph holds the number: it keeps no instance alive, and says so when it is gone."""

    COUNT: ClassVar = itertools.count(1)
    OPERATIONS: ClassVar = weakref.WeakValueDictionary()
    KEPT: ClassVar = []
    FORKED = "this process was forked from the one that made the instance: make one here, or start processes by spawn"

    @classmethod
    def add(cls, operation):
        cls.watch_forks()
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

    @classmethod
    def watch_forks(cls):
        """In a forked child neither CUDA nor the process group's threads are there: every op says so when called."""
        if vars(cls).get("WATCHED") or not hasattr(os, "register_at_fork"):
            return
        cls.WATCHED = True
        os.register_at_fork(after_in_child=cls.orphan)

    @classmethod
    def orphan(cls):
        """Kept alive as well: what frees the parent's memory and connections has no place in the child."""
        cls.KEPT = list(cls.OPERATIONS.values())
        for operation in cls.KEPT:
            operation.closed_because = cls.FORKED


class OfProcess:
    """What belongs to a process and its process group: a copy of a model shares it, and no file holds it."""

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError(
            f"{self.NAME} belongs to this process and its process group, so it cannot be pickled: save the state_dict "
            "of a layer, make the instance anew where it is loaded, and start processes before instances are made"
        )
