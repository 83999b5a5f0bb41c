"""Which values of route, via, place and chunk are held against each other, for a collective of an op.

A `Group` is what moves the bytes and in which order; of a group the number of programs and the chunk are up for choice.
Not among them: what changes bits (rings and tiers of reductions, which round at each hop or add in another order),
`tma` but for reductions over a link on which it was measured beside loads and stores, and transfers co-located with the
tiles that wait for them; a spec may write all of these.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.cost.constants import Link
from chunkdsl.ir.graph import Op, Value
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, Place, Policy
from chunkdsl.lower.facts import POINTWISE
from chunkdsl.record import record

TIERS = ("swizzle", "direct", "ring")
HIERARCHIES = tuple(f"hierarchical({outer}, {inner})" for outer in TIERS for inner in TIERS)
PROGRAMS = (16, 8, 32)  # beside those that fill the link, which come first
MIB = 1 << 20
CHUNKS = (4, 2, 8, 16)  # MiB
WOVEN = (ChunkCount(4), ChunkCount(2), ChunkCount(8))  # so many chunks a shard weave the tiers of a gather
BUFFERS = (1, 2)
CARRIERS = ("copy_engine", "ldst")


@record
class Group:
    """`kind` of its place, "" by copy engine. `via` "": what the rules say."""

    route: str
    via: str
    kind: str


@record
class Values:
    """One transport, as it is tried."""

    group: Group
    programs: int = 0
    chunk: object = None
    buffers: int | None = None

    def of(self, key: str) -> object:
        """The value of a key; None if the rules or the spec say it."""
        if key == "place":
            return Place(self.group.kind, self.programs) if self.group.kind else None
        return getattr(self.group, key) or None if key in ("route", "via") else getattr(self, key)

    def settled(self) -> dict[str, object]:
        """All keys."""
        return {key: self.of(key) for key in ("route", "via", "place", "chunk", "buffers")}


def departs(v: Value, op: Op) -> bool:
    """Whether tiles send what they make: of reductions, and of an all_to_all of a product that has no name. What else
    moves is there before any tile, so that copy engines may move it."""
    named = {s.value for s in op.statements}

    def made(x: Value) -> bool:
        return x not in named and (x.kind == "matmul" or (x.kind in POINTWISE and any(map(made, x.args))))

    return made(v.args[0]) if v.kind == "all_to_all" else v.kind != "all_gather"


def _by_library(v: Value) -> bool:
    """Does the spec have the library make what a reduction adds up?"""
    return v.args[0].kind == "matmul" and v.args[0].policy.compute == "library"


def programs_of(link: Link) -> tuple[int, ...]:
    """The numbers of programs that are tried, the simplest first."""
    return tuple(dict.fromkeys((link.programs_to_fill, *PROGRAMS)))


def tells_tma_apart(link: Link) -> bool:
    return link.tma_program_gbs != link.program_gbs


def groups_of(v: Value, op: Op, nested: bool, link: Link) -> tuple[Group, ...]:
    """All groups for a collective whose policy says nothing."""
    if departs(v, op) and _by_library(v):  # behind each call, in stream order
        return tuple(Group(route, "copy_engine", "") for route in ("swizzle", "direct"))
    if departs(v, op):
        planned = v.policy.route not in (None, "swizzle", "direct")  # a plan has programs of its own
        kinds = ("co_located",) if v.kind == "all_to_all" and not planned else ("co_located", "own_sms")
        ways = [(_stored(v, link), kind) for kind in kinds]
        ways += [("tma", "own_sms")] if _stored(v, link) else []
        return tuple(Group(route, via, kind) for route in ("swizzle", "direct") for via, kind in ways)
    found = [Group(route, "copy_engine", "") for route in ("swizzle", "direct")]
    found += [Group(route, "ldst", "own_sms") for route in ("swizzle", "direct")]
    if v.kind == "all_gather":
        found += [Group(route, "ldst", "own_sms") for route in ("ring", *(HIERARCHIES if nested else ()))]
    return tuple(found)


def weaves(group: Group) -> bool:
    """Does a number of chunks change in which order its transfers are taken up?"""
    return group.route.startswith("hierarchical(")


def _stored(v: Value, link: Link) -> str:
    """How what tiles make travels by the rules: what they say, "", unless `tma` is held against it."""
    return "ldst" if v.kind != "all_to_all" and tells_tma_apart(link) else ""


def simplest(v: Value, op: Op, chunk: object, buffers: object, link: Link) -> Values:
    """What the rules say where a policy says nothing."""
    engine = not departs(v, op) or _by_library(v)
    group = Group("swizzle", "copy_engine", "") if engine else Group("swizzle", _stored(v, link), "co_located")
    return Values(group, 0, chunk, buffers)


def written_in(group: Group, policy: Policy) -> Group:
    """The group with what a policy says in place of it; it may be one that is not legal."""
    kind = policy.place.kind if policy.place else group.kind
    via = policy.via or ("ldst" if group.via == "copy_engine" and policy.place else group.via)
    kind = "" if via == "copy_engine" else kind or "own_sms"
    return Group(policy.route or group.route, via, kind)


def up_for_choice(policy: Policy, groups: tuple[Group, ...], programs: tuple[int, ...]) -> Iterator[str]:
    """The keys of route, via and place of which a policy writes a value that is tried anyway."""
    if policy.route in {g.route for g in groups}:
        yield "route"
    if policy.via in {g.via for g in groups}:
        yield "via"
    place = policy.place
    if place and place.kind in {g.kind for g in groups} and (not place.programs or place.programs in programs):
        yield "place"


def chunks_like(rule: object, parts: int) -> list:
    """Chunks to try where the rules say `rule`, which comes first. `parts`: what a plan cuts shards into, which a
    number of chunks makes up."""
    if isinstance(rule, ChunkBytes):
        return list(dict.fromkeys([rule, *(ChunkBytes(n * MIB) for n in CHUNKS)]))
    if isinstance(rule, ChunkCount):
        counts = (rule.count, 2 * rule.count, -(-rule.count // 2), -(-rule.count // 4))
        return list(dict.fromkeys(ChunkCount(-(-max(parts, n) // parts) * parts) for n in counts))
    return [None]


def moved(values: Values, simple: Values, programs: int) -> int:
    """How many keys differ from the simplest values, which do not depend on what a spec writes of them. `programs`: the
    simplest number of them."""
    mine, group = values.group, simple.group
    kinds = {group.kind, "own_sms"} if group.via == "copy_engine" else {group.kind}  # without them there is no place
    count = (mine.route != group.route) + (mine.via != group.via) + (mine.kind not in kinds)
    count += mine.kind == "own_sms" and values.programs != programs
    return count + sum(getattr(values, k) not in (None, getattr(simple, k)) for k in ("chunk", "buffers"))


def text_of(value: object) -> str:
    """As a policy writes it."""
    match value:
        case Place():
            return f"{value.kind}({value.programs})" if value.programs else value.kind
        case ChunkBytes():
            return f"{value.count // MIB} MiB"
        case ChunkCount():
            return f"{value.count} per shard"
        case tuple():
            return "x".join(map(str, value))
    return "" if value is None else str(value)
