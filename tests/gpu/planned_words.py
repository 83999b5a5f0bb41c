"""What the plans of a spec's ops say of waits and signals, as JSON for check_gluon.py: needs chunkdsl, not a GPU.

    python tests/gpu/planned_words.py SPEC [SPEC ...] [-o build/gpu] [--calls 1000,2048]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from chunkdsl import pipeline
from chunkdsl.plan.unroll import unroll
from chunkdsl.sim.conformance import planned


def words_of(schedule, op, dims: dict[str, int], world: int) -> list[dict]:
    """For each rank {kernel: {"waits": words, "signals": words}}, a word being [flags, owner, index]."""
    ranks: list[dict] = [{} for _ in range(world)]
    for (rank, _, kernel), side in planned(unroll(schedule, op, world, [dims])).items():
        ranks[rank][kernel] = {"waits": sorted(map(list, side.waits)), "signals": sorted(map(list, side.signals))}
    return ranks


def planned_words(path: str, calls: list[int], world: int) -> list[dict]:
    """One entry for each op and size: op, dims, world, ranks."""
    schedule = pipeline.read_one(path).schedule
    found = []
    for op in (op for op in schedule.ops if any(n.products for n in op.launches)):
        for size in calls:
            dims = {r.name: min(size, r.high) for r in schedule.ranges}
            ranks = words_of(schedule, op, dims, world)
            found.append({"op": op.name, "dims": dims, "world": world, "ranks": ranks})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="+")
    parser.add_argument("-o", dest="folder", default="build/gpu")
    parser.add_argument("--calls", type=lambda text: [int(n) for n in text.split(",")], default=[1000, 2048])
    parser.add_argument("--world", type=int, default=2)
    args = parser.parse_args()
    for path in args.specs:
        found = planned_words(path, args.calls, args.world)
        target = Path(args.folder, f"{Path(path).stem}.words.json")
        target.write_text(json.dumps(found), encoding="utf-8")
        print(f"{target}: {', '.join(sorted({e['op'] for e in found}))}")


if __name__ == "__main__":
    main()
