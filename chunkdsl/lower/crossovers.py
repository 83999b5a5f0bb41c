"""Where one way of a communication gives way to another, in bytes: of a small all-reduce what a rank sends in a round,
else what its buffer holds. Read from crossovers.toml. The same on every rank, as it depends on global sizes and the
world size alone."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache

PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "crossovers.toml")


@cache
def crossovers() -> Mapping[str, dict]:
    """The file as it stands: by name value, kind, source and date."""
    with open(PATH, "rb") as file:
        return tomllib.load(file)


def crossover(name: str) -> int:
    """Bytes up to which the way before it is the faster one. KeyError for a name that the file does not have."""
    return crossovers()[name]["value"]
