"""Do kernels of specialised warps wait and signal as the plan says? Gluon has no interpreter, so this is the
simulator's conformance check on a GPU: an instrumented module (gluon_notes.py) notes the address of each word that a
kernel has waited for or set, and what is noted must be what the plan has, kernel by kernel and word by word, in
tiles of each width. It notes too when a tile is complete, once for each of its storers, and when a chunk was counted as
whole: all of its tiles must stand before that.

    python tests/gpu/planned_words.py specs/ag_gemm.chunk specs/gemm_rs.chunk -o build/gpu        # with chunkdsl
    python tests/gpu/check_gluon.py ag_gemm gemm_rs [--plant early]                         # on the GPU

Two ranks are threads on one GPU. What `--plant` plants must be found at a size of several chunks, and is then what
success means: `wait`, only the first chunk of a shard is ever waited for; `early`, chunks are signalled when half of
their tiles are there; of own tiles that add up what the others sent (`add = in_tiles`), `add`, storers add before they
wait; `last`, multipliers add their last tile, of a sum that stays, without waiting. A module that has no place for a
fault is a ValueError: nothing waits in gemm_rs, and multipliers add nothing to sums that travel on.

Notes of one rank are numbered by one word, so that what happens before something else has the smaller number: a tile's
note stands behind the wait for its stores and before its contribution to the counter, which is acquired and released.

Own tiles of a sum are compared by what they waited for, as one that forgets its wait is hidden by others that wait for
the same words: a note is of its partition, and where a piece of half a tile begins to be added, it stands for the words
that its partition has waited for since its last tile. As many pieces must be added, and as many halves be complete,
behind the wait for some words as the plan has; a half is complete behind its four pieces, whoever added them, or behind
none where it has no rows.

What notes do not see: which rows are added, from where and into what, and in which order of ranks (the bits that
check_ranks.py compares, and test_gluon_values.py without a GPU); which of the tiles that wait for the same words has a
fault; what the compiler or the memory makes of the order in the text, as notes say when a partition came by (the lints
read what was compiled): that loads of addends stay behind the acquire, and that the stores of a tile have ended where
it is said to be complete. `early` of a chunk whose tiles are all stored by then leaves the notes of one that is right,
and so does `add` where no program has two own tiles of a sum that stays: more rows show both.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

from gluon_notes import ADDS, HEAD, KEPT, NOTES, PLANTS, SIGNAL, STORED, WAIT, WHOLE, instrumented

PIECES = 4  # of a half tile, each handed over on its own


def noted(words: list[int], marks: list[tuple[str, int]], places: list[tuple[int, int, str, int]]) -> dict:
    """{kernel: {kind: Counter of (flags, owner, index, epoch)}}; in order, of tiles {STORED: [(kind, a chunk's counter,
    share)]}, of those of sums {ADDS: [(kind, who, word or half tile)]}. `words`: of the notes; `marks`: (kernel, notes
    when it had ended) in stream order; `places`: (first address, end, flags, owner)."""
    found: dict = {}
    first = 0
    for kernel, end in marks:
        side = found.setdefault(kernel, {WAIT: Counter(), SIGNAL: Counter(), STORED: [], ADDS: []})
        for i in range(first, end):
            kind, low, high, value = words[4 * i : 4 * i + 4]
            kind, who, address = kind % 8, kind // 8, (low & 0xFFFFFFFF) | (high << 32)
            if kind in (STORED, WHOLE):
                side[STORED].append((kind, address, value))
            elif kind in (ADDS, KEPT):
                side[ADDS].append((kind, who, value))
            else:
                name, owner, base = next(((n, o, a) for a, e, n, o in places if a <= address < e), ("unknown", 0, 0))
                word = (name, owner, (address - base) // 4)
                side[kind][(*word, value)] += 1
                side[ADDS] += [(kind, who, word)] if kind == WAIT else []
        first = end
    return found


def differences(planned: dict, found: dict, epoch: int) -> list[str]:
    """Of the kernels of specialised warps. A word may be waited for by many tiles; it is set once."""
    said = []
    for kernel in (k for k in found if k.endswith("_warps")):
        none = {"waits": [], "signals": [], "tiles": [], "added": [], "kept": []}
        plan = none | planned.get(kernel.removesuffix("_warps"), {})
        waits, signals = ({(*word, epoch) for word in plan[what]} for what in ("waits", "signals"))
        for what, want, got in (("wait for", waits, found[kernel][WAIT]), ("signal", signals, found[kernel][SIGNAL])):
            said += [f"{kernel}: no {what} {word}" for word in sorted(want - got.keys())]
            said += [f"{kernel}: {what} {word} is not in the plan" for word in sorted(got.keys() - want)]
        said += [f"{kernel}: signals {w} {n} times" for w, n in sorted(found[kernel][SIGNAL].items()) if n != 1]
        said += [f"{kernel}: {text}" for text in early(found[kernel][STORED], plan["tiles"])]
        if plan["kept"]:
            said += [f"{kernel}: {text}" for text in summed(found[kernel][ADDS], plan)]
    return said


def summed(notes: list[tuple], plan: dict) -> list[str]:
    """What is wrong with tiles that a kernel adds up; `plan`: {"added", "kept": [(words waited for, half tiles)]}."""
    heard, pieces, said = defaultdict(set), Counter(), Counter()
    added, kept = Counter(), Counter()
    for kind, who, what in notes:
        if kind == WAIT:
            heard[who].add(what)
        elif kind == ADDS:
            added[frozenset(heard[who])] += 1
            pieces[what] += 1
        else:  # a third half stands for both, of a tile without rows: the producer's
            words, n, whole = frozenset(heard.pop(who, ())), pieces[what], what % 4 == 2
            kept[words] += 2 if whole else 1
            if n != (PIECES if words and not whole else 0):
                said[f"a half tile that waited for {shown(words)} is complete with {n} pieces added up"] += 1
    texts = [f"{text}, {n} times" for text, n in sorted(said.items())]
    for what, got, times in (("pieces are added up", added, PIECES), ("half tiles are complete", kept, 1)):
        name = "added" if got is added else "kept"
        want = Counter({frozenset(map(tuple, words)): times * n for words, n in plan[name] if n})
        for words in sorted(want.keys() | got.keys(), key=sorted):
            if want[words] != got[words]:
                texts.append(f"{got[words]} {what} behind the wait for {shown(words)}, {want[words]} in the plan")
    return texts


def shown(words: frozenset) -> str:
    return " and ".join(f"{flags}[{index}] of rank {owner}" for flags, owner, index in sorted(words)) or "nothing"


def early(notes: list[tuple[int, int, int]], tiles: list[int]) -> list[str]:
    """Chunks that were counted as whole before all of their tiles were complete. `tiles`: of each chunk of the plan."""
    shares, whole = Counter(), {}
    for kind, counter, share in notes:
        if kind == STORED:
            shares[counter] += share
        else:
            whole[counter] = shares[counter]
    too_soon = [(n, shares[c]) for c, n in whole.items() if n != shares[c]]
    said = [f"a chunk of {all_of / 2:g} tiles is signalled after {n / 2:g}" for n, all_of in too_soon]
    said += [f"a chunk of {n / 2:g} tiles is never whole" for c, n in shares.items() if c not in whole]
    made = sorted(n / 2 for n in shares.values())
    return said if made == sorted(tiles) else [*said, f"chunks have {made} tiles, those of the plan {sorted(tiles)}"]


def flags_at(op, planned: dict, rank: int) -> list[tuple[int, int, str, int]]:
    """(first address, end, flags, owner) of all flags that the plan of a rank names, wherever they lie."""
    from chunkdsl.runtime.machine import Symmetric

    places = []
    for flags in {w[0] for kernel in planned.values() for w in (*kernel["waits"], *kernel["signals"])}:
        held = op.closed if flags == f"{op.NAME}_closed" else getattr(op, f"_{flags}")
        own = held.local if isinstance(held, Symmetric) else held
        starts = held.addresses if isinstance(held, Symmetric) else (own.data_ptr(),)
        owners = range(len(starts)) if isinstance(held, Symmetric) else (rank,)
        places += [(a, a + 4 * own.numel(), flags, o) for a, o in zip(starts, owners, strict=True)]
    return places


def check(stem: str, entry: dict, folder: str, plant: str) -> tuple[int, int, list[str]]:
    """(waits, signals, differences) of one op at one size, all ranks together."""
    import torch
    from local_ranks import LocalMachine, run_ranks
    from modules import FOLDER, inputs, warps_in_tiles

    path = Path(folder, f"{stem}_{plant or 'right'}.py")
    path.write_text(instrumented((FOLDER / f"{stem}.py").read_text(encoding="utf-8"), plant), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"noting_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cls = next(v for v in vars(module).values() if isinstance(v, type) and getattr(v, "OPS", None))
    cls.OPS = {entry["op"]: cls.OPS[entry["op"]]}
    warps_in_tiles(cls, entry["columns"])

    class Noting(LocalMachine):
        def symmetric(self, name, shape, dtype):
            return super().symmetric(name, (HEAD + 4 * NOTES,) if name.endswith("_state") else shape, dtype)

        def launch(self, kernel, programs, args, *rest, **named):
            made = super().launch(kernel, programs, args, *rest, **named)
            if "state" in args and "lane" not in named:
                self.state = args["state"]
                self.marks.append((kernel.__name__, self.state[16].clone()))
            return made

        def join(self, lane):
            """What ran beside a kernel counts as its own: the plan has one launch."""
            super().join(lane)
            self.marks[-1:] = [(kernel, self.state[16].clone()) for kernel, _ in self.marks[-1:]]

    share = torch.cuda.get_device_properties(0).multi_processor_count // entry["world"] - 8

    def body(machine):
        machine.__class__, machine.marks = Noting, []
        m = cls(machine=machine, timeout=20.0, **entry["dims"])
        op = getattr(m, entry["op"])
        op.GATES, op.gate, op.eager_gate = ((1, "", 0),), ("", 0), ("", 0)
        x = inputs(op, entry["dims"], machine.rank, 3)
        machine.synchronize()
        machine.marks.clear()
        op.state.local[16:].zero_()
        machine.vote("ready")
        op(*x, **entry["dims"])
        machine.synchronize()
        m.check()
        places = flags_at(op, entry["ranks"][0], machine.rank)
        if int(op.state.local[16]) > NOTES:
            raise ValueError(f"{int(op.state.local[16])} notes of one call are more than there is room for")
        words = op.state.local[HEAD:].tolist()
        found = noted(words, [(name, int(end)) for name, end in machine.marks], places)
        sides = [side for kernel, side in found.items() if kernel.endswith("_warps")]
        counts = [sum(side[kind].total() for side in sides) for kind in (WAIT, SIGNAL)]
        none = [] if sides else ["no kernel of specialised warps was launched"]
        return counts, none + differences(entry["ranks"][machine.rank], found, int(op.state.local[0]))

    done = run_ranks(entry["world"], share, body)
    said = [f"rank {rank}: {text}" for rank, (_, texts) in enumerate(done) for text in texts]
    return sum(c[0] for c, _ in done), sum(c[1] for c, _ in done), said


def main() -> int:
    from local_ranks import refuse_multicast
    from modules import FOLDER

    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stems", nargs="+")
    parser.add_argument("--plant", choices=tuple(PLANTS), default="")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="chunkdsl-") as folder:
        for stem in args.stems:
            for entry in json.loads((FOLDER / f"{stem}.words.json").read_text(encoding="utf-8")):
                waits, signals, said = check(stem, entry, folder, args.plant)
                found.append(bool(said))
                tiles = f"tiles of {entry['columns']} columns"
                name = f"{stem}.{entry['op']} {entry['dims']} on {entry['world']} ranks, {tiles}"
                told = "as the plan" if not said else f"{len(said)} differences: {'; '.join(said[:3])}"
                print(f"{name}: {waits} waits, {signals} signals by specialised warps, {told}", flush=True)
    return int(any(found) != bool(args.plant))


if __name__ == "__main__":
    sys.exit(main())
