"""How a kernel communicates, as data: the part of a spec that no call shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunkdsl.api.errors import refuse
from chunkdsl.check.api import compile_arguments

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
LINKS = ("nvlink", "pcie")
ROUTES = ("direct", "swizzle", "ring")
NAMED = ("auto", "overlap", "unfused")


@dataclass(frozen=True)
class ChunkSchedule:
    """`collective_type`: all_gather (rows of arguments travel to the kernel), reduce_scatter or all_reduce (rows of
    its result are added over the ranks). `chunk_size_bytes`: unit of transfer, None leaves it to the compiler.
    `world_size`: ranks. `overlap_policy`: "auto", a named policy of the language (overlap, unfused), a route
    (direct, swizzle, ring), or a mapping of policy keys to values, {"via": "ldst", "place": "own_sms(16)"}.
    `max_rows`: the most rows that are gathered or reduced in a call; None: those of the first call, and more build
    another module.

    Raises ChunkError (CD660)."""

    collective_type: str
    chunk_size_bytes: int | None = None
    world_size: int = 1
    overlap_policy: str | Mapping[str, object] = "auto"
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.collective_type not in COLLECTIVES:
            raise self._wrong(f"collective_type = {self.collective_type!r}", f"one of {', '.join(COLLECTIVES)}")
        for name, least in (("chunk_size_bytes", 1), ("world_size", 1), ("max_rows", 1)):
            value = getattr(self, name)
            if value is None and name != "world_size":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise self._wrong(f"{name} = {value!r}", f"a whole number from {least}")
        policy = self.overlap_policy
        if not isinstance(policy, Mapping) and policy not in NAMED + ROUTES:
            known = ", ".join(NAMED + ROUTES)
            raise self._wrong(f"overlap_policy = {policy!r}", f"one of {known}, or a mapping of policy keys to values")

    @staticmethod
    def _wrong(what: str, wanted: str) -> Exception:
        return refuse(compile_arguments(f"ChunkSchedule cannot have {what}", f"it is {wanted}"))

    def policy_text(self) -> str:
        """The `with` clause of a statement, "" where everything is left to the compiler."""
        pairs = [f"chunk = {self.chunk_size_bytes} B"] if self.chunk_size_bytes else []
        policy, name = self.overlap_policy, ""
        if isinstance(policy, Mapping):
            pairs += [f"{key} = {value}" for key, value in policy.items()]
        elif policy in ROUTES:
            pairs.append(f"route = {policy}")
        elif policy != "auto":
            name = f" {policy}"
        return f" with{name}" + (f" {{ {', '.join(pairs)} }}" if pairs else "") if name or pairs else ""
