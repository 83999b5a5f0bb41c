"""In which order a rank visits the ranks: shards for tiles, peers for transfers. Each is affine in rank and step, mod
the world size, or that with the own place of the rank moved to the front or the back.
"""

from __future__ import annotations

from enum import Enum


class Walk(Enum):
    """`value` is the name of the device function in runtime/device.py that computes the same."""

    UP = "walk_up"  # rank, rank + 1, ...
    DOWN = "walk_down"  # rank, rank - 1, ...
    ASCENDING = "walk_ascending"  # 0, 1, 2, ...
    OWN_ASCENDING = "walk_own_ascending"  # rank, then 0, 1, ... without rank
    UP_OWN = "walk_up_own"  # rank + 1, ..., rank
    DOWN_OWN = "walk_down_own"  # rank - 1, ..., rank
    ASCENDING_OWN = "walk_ascending_own"  # 0, 1, ... without rank, then rank

    def at(self, rank: int, step: int, world: int) -> int:
        """The rank visited at `step` (0 <= step < world)."""
        match self:
            case Walk.UP:
                return (rank + step) % world
            case Walk.DOWN:
                return (rank + world - step) % world
            case Walk.ASCENDING:
                return step
            case Walk.OWN_ASCENDING:
                return rank if step == 0 else step - (step <= rank)
            case Walk.UP_OWN:
                return (rank + 1 + step) % world
            case Walk.DOWN_OWN:
                return (rank + 2 * world - 1 - step) % world
            case _:
                return rank if step == world - 1 else step + (step >= rank)


# What a gather's route and side make of the peers visited and of the order in which shards arrive.
GATHER_PEERS = {"swizzle": Walk.UP_OWN, "direct": Walk.ASCENDING_OWN, "ring": None}
GATHER_ARRIVAL = {
    ("swizzle", "pull"): Walk.UP,
    ("swizzle", "push"): Walk.DOWN,
    ("direct", "pull"): Walk.OWN_ASCENDING,
    ("direct", "push"): Walk.OWN_ASCENDING,
    ("ring", "push"): Walk.DOWN,
}
# What travels first is computed first, the rank's own shard last.
SCATTER_ORDER = {"swizzle": Walk.UP_OWN, "direct": Walk.ASCENDING_OWN, "ring": Walk.DOWN_OWN}
LOCAL_FIRST = Walk.UP
GIVEN = Walk.ASCENDING
