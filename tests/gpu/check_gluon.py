"""Do kernels of specialised warps wait and signal as the plan says? Gluon has no interpreter, so this is the
simulator's conformance check on a GPU: an instrumented module notes the address of each word that a kernel has waited
for or set, and what is noted must be what the plan has, kernel by kernel and word by word. It notes too when a tile is
complete, once for each of its storers, and when a chunk was counted as whole: all of its tiles must stand before that.

    python tests/gpu/planned_words.py specs/ag_gemm.chunk specs/gemm_rs.chunk -o build/gpu        # with chunkdsl
    python tests/gpu/check_gluon.py ag_gemm gemm_rs [--plant wait]                         # on the GPU

Two ranks are threads on one GPU. `--plant`: the kernel shall forget waits, or signal chunks early, when half of their
tiles are there; that must be found at a size of several chunks, and is then what success means.

Notes of one rank are numbered by one word, so that what happens before something else has the smaller number: a tile's
note stands behind the wait for its stores and before its contribution to the counter, which is acquired and released.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

NOTES = 1 << 14  # of a call
HEAD = 32  # words of the state before them; word 16 counts them
NOTE = '''@triton.jit
def note(kind, flag, epoch, state):
    """Where the notes of this rank end, and one more: kind, address, epoch."""
    at = tl.atomic_add(state + 16, 1, sem="relaxed", scope="gpu")
    address = flag.to(tl.int64)
    tl.store(state + 32 + 4 * at, kind)
    tl.store(state + 33 + 4 * at, (address & 0xFFFFFFFF).to(tl.int32))
    tl.store(state + 34 + 4 * at, (address >> 32).to(tl.int32))
    tl.store(state + 35 + 4 * at, epoch)


'''
WAIT, SIGNAL, STORED, WHOLE = 1, 2, 3, 4
PLANTS = {  # (from where on, what, by what): in the functions of kernels of specialised warps alone
    "wait": (r"@gluon\.jit\ndef \w+_load\(", r"word = owner \* chunk_cap \+ c\b", "word = owner * chunk_cap + 0 * c"),
    "early": (r"def arrive_in\(", r"return last\n",
              "return (before < expected // 2) & (before + share >= expected // 2)\n"),
}  # fmt: skip
CHUNKS = re.compile(
    r"^( +)(for c in range\(.*\):)\n(?:.*\n){2} +if arrive_in\((.*), (\d), 2 \* tiles_of_chunk\):\n", re.M
)
COMPLETE = re.compile(  # all is written; nothing was to be written; the producer has no tile to announce
    r"^( +)bulk_wait\(NVIDIA\).*\n|^(?= +else:\n +hopper)(?: +else:\n)(?:( +)hopper\.mbarrier.*\n)+"
    r"|^ +elif ok != 0:.*\n(?=( +)for c in)", re.M)  # fmt: skip


def instrumented(text: str, plant: str = "") -> str:
    """A module whose waits and signals leave notes. ValueError if it has no place for them or for what is planted."""
    if plant:
        where, *what = PLANTS[plant]
        at = re.search(where, text)
        head, tail = (text[: at.start()], text[at.start() :]) if at else (text, "")
        changed = re.sub(*what, tail, count=1 if plant == "early" else 0)
        if changed == tail:
            raise ValueError(f"there is nothing to plant a wrong {plant} in")
        text = head + changed
    text = "@gluon.jit".join([counted(part) if i else part for i, part in enumerate(text.split("@gluon.jit"))])
    places = (
        ("@triton.jit\ndef wait_flag(", NOTE + "@triton.jit\ndef wait_flag("),
        ("    return (seen - epoch >= 0).to(tl.int32)\n",
         f"    note({WAIT}, flag, epoch, state)\n    return (seen - epoch >= 0).to(tl.int32)\n"),
        ("    tl.atomic_xchg(flag, epoch, mask=live != 0, sem=\"release\", scope=\"sys\")\n",
         "    tl.atomic_xchg(flag, epoch, mask=live != 0, sem=\"release\", scope=\"sys\")\n"
         f"    note({SIGNAL}, flag, epoch, state)\n"),
    )  # fmt: skip
    for old, new in places:
        if text.count(old) != 1:
            raise ValueError(f"{old.strip().splitlines()[-1]} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


def counted(function: str) -> str:
    """A function of specialised warps that notes what it counts in chunks. ValueError if it has no place for that."""
    chunks = CHUNKS.search(function)
    if chunks is None:
        return function
    loop, counter, share = chunks.groups()[1:]

    def complete(match: re.Match) -> str:
        pad = next(filter(None, match.groups()))
        return f"{match[0]}{pad}{loop}\n{pad}    note({STORED}, {counter}, {share}, state)\n"

    head, whole, tail = function[: chunks.start()], chunks[0], function[chunks.end() :]
    end = chunks.start(2) - chunks.start() + len(loop) + 1
    noting, places = COMPLETE.subn(complete, head + whole[:end])
    if not places:
        raise ValueError("nothing says when a tile is complete")
    pad = " " * (len(chunks[1]) + 8)
    return f"{noting}{whole[end:]}{pad}note({WHOLE}, {counter}, epoch, state)\n{tail}"


def noted(words: list[int], marks: list[tuple[str, int]], places: list[tuple[int, int, str, int]]) -> dict:
    """{kernel: {kind: Counter of (flags, owner, index, epoch)}}; of tiles in order {STORED: [(kind, a chunk's counter,
    share)]}. `words`: of the notes; `marks`: (kernel, notes when it had ended) in stream order; `places`:
    (first address, end, flags, owner)."""
    found: dict = {}
    first = 0
    for kernel, end in marks:
        side = found.setdefault(kernel, {WAIT: Counter(), SIGNAL: Counter(), STORED: []})
        for i in range(first, end):
            kind, low, high, epoch = words[4 * i : 4 * i + 4]
            address = (low & 0xFFFFFFFF) | (high << 32)
            if kind in (STORED, WHOLE):
                side[STORED].append((kind, address, epoch))
                continue
            name, owner, base = next(((n, o, a) for a, e, n, o in places if a <= address < e), ("unknown", 0, 0))
            side[kind][(name, owner, (address - base) // 4, epoch)] += 1
        first = end
    return found


def differences(planned: dict, found: dict, epoch: int) -> list[str]:
    """Of the kernels of specialised warps. A word may be waited for by many tiles; it is set once."""
    said = []
    for kernel in (k for k in found if k.endswith("_warps")):
        plan = planned.get(kernel.removesuffix("_warps"), {"waits": [], "signals": [], "tiles": []})
        waits, signals = ({(*word, epoch) for word in plan[what]} for what in ("waits", "signals"))
        for what, want, got in (("wait for", waits, found[kernel][WAIT]), ("signal", signals, found[kernel][SIGNAL])):
            said += [f"{kernel}: no {what} {word}" for word in sorted(want - got.keys())]
            said += [f"{kernel}: {what} {word} is not in the plan" for word in sorted(got.keys() - want)]
        said += [f"{kernel}: signals {w} {n} times" for w, n in sorted(found[kernel][SIGNAL].items()) if n != 1]
        said += [f"{kernel}: {text}" for text in early(found[kernel][STORED], plan["tiles"])]
    return said


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


def check(stem: str, entry: dict, folder: str, plant: str) -> tuple[int, int, list[str]]:
    """(waits, signals, differences) of one op at one size, all ranks together."""
    import torch
    from local_ranks import LocalMachine, run_ranks
    from modules import FOLDER, inputs, warps_for_all_sizes

    from chunkdsl.runtime.machine import Symmetric

    path = Path(folder, f"{stem}_{plant or 'right'}.py")
    path.write_text(instrumented((FOLDER / f"{stem}.py").read_text(encoding="utf-8"), plant), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"noting_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cls = next(v for v in vars(module).values() if isinstance(v, type) and getattr(v, "OPS", None))
    cls.OPS = {entry["op"]: cls.OPS[entry["op"]]}
    warps_for_all_sizes(cls)

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
        places = []
        planned = [w for kernel in entry["ranks"][0].values() for w in (*kernel["waits"], *kernel["signals"])]
        for flags in {w[0] for w in planned}:
            held = op.closed if flags == f"{op.NAME}_closed" else getattr(op, f"_{flags}")
            own = held.local if isinstance(held, Symmetric) else held
            starts = held.addresses if isinstance(held, Symmetric) else (own.data_ptr(),)
            owners = range(len(starts)) if isinstance(held, Symmetric) else (machine.rank,)
            places += [(a, a + 4 * own.numel(), flags, o) for a, o in zip(starts, owners, strict=True)]
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
                name = f"{stem}.{entry['op']} {entry['dims']} on {entry['world']} ranks"
                told = "as the plan" if not said else f"{len(said)} differences: {'; '.join(said[:3])}"
                print(f"{name}: {waits} waits, {signals} signals by specialised warps, {told}", flush=True)
    return int(any(found) != bool(args.plant))


if __name__ == "__main__":
    sys.exit(main())
