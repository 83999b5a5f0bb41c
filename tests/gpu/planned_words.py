"""What the plans of a spec's ops say of waits and signals, as JSON for check_gluon.py: needs chunkdsl, not a GPU.

    python tests/gpu/planned_words.py SPEC [SPEC ...] [-o build/gpu] [--calls 1000,2048]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from itertools import product as pairs
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from chunkdsl import pipeline
from chunkdsl.plan.geometry import local_size
from chunkdsl.plan.plan import Act
from chunkdsl.plan.tile_kernels import shapes_of, warp_tiles
from chunkdsl.plan.unroll import unroll
from chunkdsl.plan.within import sum_within
from chunkdsl.runtime.slices import tiles_of
from chunkdsl.sim.conformance import kernel_of, planned

PLANNED = warp_tiles().tile[1]  # columns of the plan's tile


def words_of(schedule, op, dims: dict[str, int], world: int, columns: int = PLANNED) -> list[dict]:
    """For each rank {kernel: {"waits": words, "signals": words, "tiles": numbers, "added": halves, "kept": halves}}: a
    word is [flags, owner, index], a number that of the tiles which a signal waits for, of so many `columns` where
    specialised warps compute them. Halves of own tiles of a sum are [[words that they wait for, how many]]: those with
    rows to add up, and all, which storers are done with. Of a tile without rows the producer waits for both; a half
    without rows in a tile that has some waits for nothing."""
    ranks: list[dict] = [{} for _ in range(world)]
    plan = unroll(schedule, op, world, [dims])
    for (rank, _, kernel), side in planned(plan).items():
        ranks[rank][kernel] = {"waits": sorted(map(list, side.waits)), "signals": sorted(map(list, side.signals))}
    launches, tiles = {lane.name: lane.launch for lane in plan.lanes}, Counter()
    products = {n.name: n for n in op.launches if n.warps}

    def counted(task) -> int:
        """Tiles of the kernel in those of a task."""
        product = products.get(kernel_of(task, launches))
        if product is None:
            return task.count
        return tiles_of(task.count, local_size(product.cols, dims, world, task.rank, op.over), PLANNED, columns)

    for task in (task for task in plan.tasks if task.kind == "tile"):
        chunks = {(plan.signals[s].flags, plan.signals[s].index): s for s in reversed(task.signals)}
        for first in chunks.values():  # words of one chunk at several ranks count its tiles once
            tiles[task.rank, kernel_of(task, launches), first] += counted(task)
    for rank, made in enumerate(ranks):
        for kernel, words in made.items():
            words["tiles"] = sorted(n for (r, k, _), n in tiles.items() if (r, k) == (rank, kernel))
            product = next((n for n in op.launches if n.name == kernel and sum_within(op, n)), None)
            own = [t for t in plan.tasks if t.kind == "tile" and t.waits and product and t.rank == rank]
            own = [t for t in own if kernel_of(t, launches) == kernel]
            words["added"], words["kept"] = halves_of(plan, [(t, counted(t)) for t in own], product, columns)
    return ranks


def halves_of(plan, own, product, across: int) -> tuple[list, list]:
    """Of tasks of own tiles and how many these are, `across` columns each: [[words, halves that are added up]],
    [[words, halves that are done]]."""
    added, kept = Counter(), Counter()
    for task, count in own:
        words = tuple(sorted({(s.flags, s.owner, s.index) for s in (plan.signals[w] for w in task.waits)}))
        made = [a.region for a in task.accesses if a.act is Act.PUT]  # none: these tiles have no rows
        rows, width = (made[0].row1 - made[0].row0, made[0].col1 - made[0].col0) if made else (0, 0)
        columns, half = -(-width // across), product.tiling.bm // 2
        halves, tiles = -(-rows // half) * columns, -(-rows // product.tiling.bm) * columns
        added[words] += halves
        kept[words] += halves + 2 * (count - tiles)
        kept[()] += 2 * tiles - halves
    return tuple([[list(map(list, w)), n] for w, n in sorted(c.items()) if n] for c in (added, kept))


def planned_words(path: str, calls: list[int], world: int) -> list[dict]:
    """One entry for each op, size and shape of tiles that its products have: op, dims, world, columns, ranks."""
    schedule = pipeline.read_one(path).schedule
    found = []
    for op in (op for op in schedule.ops if any(n.products for n in op.launches)):
        shapes = dict.fromkeys(s.columns for n in op.launches if n.warps for s in shapes_of(n))
        for size, columns in pairs(calls, shapes or (PLANNED,)):
            dims = {r.name: min(size, r.high) for r in schedule.ranges}
            ranks = words_of(schedule, op, dims, world, columns)
            found.append({"op": op.name, "dims": dims, "world": world, "columns": columns, "ranks": ranks})
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
