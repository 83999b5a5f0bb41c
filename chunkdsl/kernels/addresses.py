"""Of which arguments must a program's loads follow from sizes and program ids alone?

Of what travels, and of sizes of which this rank has a part: with them the plan deals; so must all stores. Where a
kernel reads along what is whole on each rank is its own affair: the group of weights that a block of rows takes may
stand in a table. Such an index is not held against the argument's shape.
"""

from __future__ import annotations

from collections.abc import Collection

from chunkdsl.ir.types import DimRef
from chunkdsl.kernels.binding import Binding
from chunkdsl.kernels.tracked import ALL, COLUMNS


def exact_loads(binding: Binding, gathered: Collection[str], parted: Collection[str]) -> dict[str, str]:
    """What of each argument's loads must not depend on data. `parted`: sizes that are sharded."""
    found = {t.name: ALL for t in binding.results}
    for t in binding.tensors:
        parts = [i for i, d in enumerate(t.dims) if isinstance(d, DimRef) and d.name in parted]
        if t.name in gathered or parts:
            alone = parts == [len(t.dims) - 1] and len(t.dims) > 1 and t.name not in gathered
            found[t.name] = COLUMNS if alone else ALL
    return found
