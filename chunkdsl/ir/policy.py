"""A policy after checking: every key typed, None where the spec leaves the choice to the compiler (`auto`)."""

from __future__ import annotations

from dataclasses import field, fields

from chunkdsl.record import record
from chunkdsl.source import Span


@record
class ChunkBytes:
    count: int


@record
class ChunkRows:
    """`count along dim`."""

    count: int
    dim: str


@record
class ChunkCount:
    """`count per shard`."""

    count: int


ChunkSize = ChunkBytes | ChunkRows | ChunkCount


@record
class Place:
    """`own_sms(n)`: n communication programs in the launch; 0 for `own_sms(auto)`. `co_located`: inside the compute
    programs, `programs` 0."""

    kind: str
    programs: int = 0

    @property
    def counted(self) -> bool:
        """Whether it says how many programs there are."""
        return self.kind != "own_sms" or self.programs > 0


@record
class FuseFrom:
    """Gate: the fused path runs when the global size of `dim` is at least `count`. `always` is 0, `never` is None."""

    count: int | None
    dim: str | None = None


@record
class Policy:
    """Values of language.md's policy table. `spans` maps each key that the spec wrote to its place."""

    chunk: ChunkSize | None = None
    tile: tuple[int, int, int] | None = None
    stages: int | None = None
    warps: int | None = None
    compute: str | None = None
    route: str | None = None
    via: str | None = None
    side: str | None = None
    place: Place | None = None
    order: str | None = None
    buffers: int | None = None
    reduce: str | None = None
    add: str | None = None
    wire: str | None = None
    algorithm: str | None = None
    fuse: str | None = None
    fuse_from: FuseFrom | None = None
    eager_from: FuseFrom | None = None
    fallback: str | None = None
    validity: str | None = None
    assume: str | None = None
    retry: int | None = None
    spans: dict[str, Span] = field(default_factory=dict, compare=False, hash=False)

    def over(self, base: Policy) -> Policy:
        """This policy's values, and `base`'s where this one leaves a key out."""
        merged = {
            f.name: getattr(self, f.name) if getattr(self, f.name) is not None else getattr(base, f.name)
            for f in fields(self)
            if f.name != "spans"
        }
        return Policy(**merged, spans={**base.spans, **self.spans})
