"""Everything that a host with several GPUs can say, in one command of less than nine minutes: the bits of every op in
specs/ against `exact` at that world size, eagerly and in graph replays; then all-gather + GEMM, GEMM + reduce-scatter,
GEMM + all-reduce and small all-reduces against NCCL with cuBLAS and torch's symmetric-memory ops, on the shapes of
RESULTS.md, with the cost model's prediction and its error.

    python tests/bench/build_for_gpu.py                                   # where chunkdsl is installed: build/gpu
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0
    python tests/bench/multi_gpu.py --json out.json                       # on the GPUs: all that the host has
    python tests/bench/multi_gpu.py --world 2 --json out.json             # on one: two processes share it, bits alone
    python tests/bench/multi_gpu.py --device cpu --specs gemm_ar          # simulated ranks, nothing measured
    python tests/bench/multi_gpu.py --table out.json                      # the table again
    python tests/bench/multi_gpu.py --peers DIR --json out.json           # beside flashinfer, kraken, Helion, in DIR
    python tests/bench/multi_gpu.py --peers DIR --device cpu              # whether what DIR holds can be imported

Cases run one after the other in a group of processes, a rank each. One that hangs, dies or fails is named in the
table, its group is killed whole, and the rest goes on. Kernels are compiled beforehand, many modules at a time.
Each other peer has groups of its own, behind all that is ours, and each of its calls is a case; of one that hangs
larger sizes are not tried. The JSON is written after every case.
Ends with 0 if all of ours that ran was right and nothing of ours was left out but for a reason that the specs give,
else with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import distributions, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from multi_rows import BESIDE, MEASURED, ONLY_ALONE, OTHERS, bits, heading, measured_rows, shown, table, table_of_others
from watched import Case, Group, Outcome, run_cases

SESSION = Path(__file__).resolve().parent / "rank_session.py"
CHECK, MEASURE, COMPILE, START = 90.0, 60.0, 150.0, 120.0  # limits in seconds
PEER, PEER_START = 25.0, 60.0  # beside other peers; of what follows their first call gpu_session.py says the limits
SECONDS, SECONDS_BESIDE = 500.0, 240.0  # for everything
WITHOUT = " without "  # in the name of what is tried again
PLANTED = 1.0
SLOWNESS = 20  # of simulated ranks, on whatever else a machine does
COMPILING = 0.4  # of the whole time, at most


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


class Starter:
    """Starts groups for cases; `task`: what every session is told."""

    def __init__(self, folder: str, task: Mapping, build: str) -> None:
        self.folder, self.task, self.build, self.number = Path(folder), task, build, 0

    def __call__(self, cases: list[Case], alone: bool = False, **more) -> Group:
        """A process for each rank, or one for all where they are simulated, or `alone`."""
        self.number += 1
        path = self.folder / f"task{id(cases):x}_{self.number}.json"
        told = [{"name": c.name, "kind": c.kind, "about": dict(c.about)} for c in cases]
        path.write_text(json.dumps({**self.task, **more, "cases": told}), encoding="utf-8")
        processes = 1 if alone or self.task["device"] == "cpu" else self.task["world"]
        shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        shared |= {"CHUNKDSL_GPU_BUILD": self.build, "PYTHONUNBUFFERED": "1"}
        ranks = [{**shared, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(processes)]
        return Group([sys.executable, str(SESSION), str(path)], ranks)


def shape_for(worlds: list, world: int):
    """The mesh of `world` ranks among those that a module runs on: of two axes the one that has both, and is squarest.
    None if there is none."""
    if world in worlds:
        return world
    pairs = [w for w in worlds if not isinstance(w, int) and w[0] * w[1] == world]
    return max(pairs, key=lambda w: (min(w), w[1]), default=None)


def plan_cases(specs: Mapping, world: int, chosen: list[str], sizes: int) -> tuple[list[Case], list[Outcome]]:
    """Checks of what is measured, the measurements (of each op so many sizes), all other checks; and what these specs
    cannot do."""
    measured = dict.fromkeys(key.split(".")[0] for key in MEASURED)
    chosen = chosen or [*measured, *(stem for stem, about in specs.items() if about["shipped"])]
    first = [stem for stem in measured if stem in specs and stem in chosen]
    ahead, timed, rest, left_out = [], [], [], []
    for stem in [*first, *(s for s in specs if s in chosen and s not in first)]:
        shape = shape_for(specs[stem]["worlds"], world)
        # Other ops of what is only measured may be wrong on purpose.
        all_ops = specs[stem]["shipped"] or stem not in measured
        for op in (op for op in specs[stem]["ops"] if all_ops or f"{stem}.{op}" in MEASURED):
            case = Case(f"check {stem}.{op}", "check", CHECK, {"stem": stem, "op": op, "shape": shape})
            if shape is None:
                left_out.append(Outcome(case, "not served", f"the spec serves {specs[stem]['worlds']} ranks"))
            else:
                (ahead if stem in first else rest).append(case)
            if shape is not None and f"{stem}.{op}" in MEASURED:
                timed += list(measurements(stem, op, shape))[:sizes]
    return [*ahead, *timed, *rest], left_out


def measurements(stem: str, op: str, shape) -> Iterator[Case]:
    """One case for each size; where it hangs with torch's ops, it is tried without."""
    dim, sizes = MEASURED[f"{stem}.{op}"]
    for size in sizes:
        about = {"stem": stem, "op": op, "shape": shape, "dim": dim, "size": size, "torchs": True}
        name = f"time {stem}.{op} {shown(f'{stem}.{op}', size)}"
        again = Case(f"{name}{WITHOUT}torch's ops", "measure", MEASURE, {**about, "torchs": False})
        yield Case(name, "measure", MEASURE, about, again)


def beside(cases: list[Case]) -> list[list[Case]]:
    """What is measured, beside every call of other peers: a list for each peer, gathers by copy engines, the likeliest
    to hang, last."""
    rows = {stem: [c for c in cases if c.kind == "measure" and c.about["stem"] == stem] for stem in OTHERS}
    by_peer: dict[str, list[Case]] = {}
    for stem, names in OTHERS.items():
        for name in names:
            for row in (c for c in rows[stem] if f"{stem}.{c.about['op']}" not in ONLY_ALONE):
                about = {k: v for k, v in row.about.items() if k != "torchs"} | {"peer": name}
                line = f"{stem} {name}"
                case = Case(f"{row.name} beside {name}", "beside", PEER, about, line=line)
                by_peer.setdefault(name.split()[0], []).append(case)
    return list(by_peer.values())


def compile_ahead(cases: list[Case], starter: Starter, gpus: int, seconds: float, say) -> None:
    """Every module's kernels into Triton's cache, one process a module. What goes wrong here is found again later."""
    modules = {(c.about["stem"], str(c.about["shape"])): c.about for c in cases}
    todo = [Case(f"compile {m['stem']}", "compile", COMPILE, {"stem": m["stem"], "shape": m["shape"]})
            for m in modules.values()]  # fmt: skip
    until = time.monotonic() + seconds

    def one(i: int) -> None:
        left = until - time.monotonic()
        run_cases([todo[i]], lambda cases: starter(cases, alone=True, gpu=i % gpus), left, START, say)

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as lanes:
        list(lanes.map(one, range(len(todo))))


def as_record(outcome: Outcome) -> dict:
    """An outcome for the JSON."""
    case, about = outcome.case, outcome.case.about
    named = {"op": f"{about['stem']}.{about['op']}"} if "op" in about else {}
    named |= {key: about[key] for key in ("size", "peer") if key in about}
    how = {"how": outcome.how, "why": outcome.why, "seconds": round(outcome.seconds, 1)}
    return {"name": case.name, "kind": case.kind, **named, **how, "found": dict(outcome.found)}


def show(run: Mapping) -> str:
    parts = [heading(run), bits(run)]
    reasons = sorted({c["found"]["untimed"] for c in run["cases"] if "untimed" in c["found"]})
    parts += [f"Not timed: {why}." for why in reasons]
    if any(found.keys() - {"untimed"} for found in measured_rows(run).values()):
        if run["predicted_for"] not in run["machine"]["name"]:
            parts.append(f"The predictions are for {run['predicted_for']}s, which this is not.")
        parts.append(table(run, run["predictions"]))
    if any(c["kind"] == "beside" for c in run["cases"]):
        parts.append(table_of_others(run))
    return "\n\n".join(parts)


def failed(run: Mapping) -> bool:
    """Whether something is wrong or was not done. What is planted shall fail, other peers may; neither is counted."""
    counted = [c for c in run["cases"] if c["kind"] not in ("planted", "beside") and c["how"] != "not served"]
    done = {c["name"].split(WITHOUT)[0] for c in counted if c["how"] == "done"}
    bad = [c for c in counted if c["how"] != "done" and c["name"].split(WITHOUT)[0] not in done]
    return bool(bad) or any(c["found"].get("wrong") for c in counted)


def versions(folder: str) -> dict[str, str]:
    """Of the packages in a folder of peers, as their metadata or a file VERSION in them say."""
    told = {d.metadata["Name"]: d.version for d in distributions(path=[folder])}
    return told | {p.parent.name: p.read_text(encoding="utf-8").strip() for p in Path(folder).glob("*/VERSION")}


def machine_of(device: str) -> dict:
    if device == "cpu":
        return {"name": "simulated in one process", "gpus": 0, "torch": version("torch"), "triton": version("triton")}
    done = subprocess.run([sys.executable, str(SESSION), "--probe"], capture_output=True, text=True, timeout=START)
    if done.returncode:
        raise SystemExit(done.stderr.strip()[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def index_of(args) -> dict:
    """What is built; for simulated ranks what the specs say."""
    if args.device == "cpu":
        from build_for_gpu import index_unbuilt

        return index_unbuilt(args.specs, (args.world or 2,))
    path = Path(args.build, "index.json")
    if not path.exists():
        raise SystemExit(f"there is no {path}: run tests/bench/build_for_gpu.py where chunkdsl is installed")
    return json.loads(path.read_text(encoding="utf-8"))


def wanted_sizes(args, case: Case) -> tuple[int, ...]:
    """Of a row: those asked for, else all, or beside other peers on GPUs a few."""
    key = f"{case.about['stem']}.{case.about['op']}"
    few = args.peers and args.device == "cuda"
    return args.sizes or (BESIDE[key] if few else MEASURED[key][1])


def run(args) -> dict:
    """Everything; the JSON is written after each case, so that a run that is stopped leaves what it has."""
    began = time.monotonic()
    index, machine = index_of(args), machine_of(args.device)
    world = args.world or machine["gpus"] or 2
    sizes = 1 if args.device == "cpu" else 99
    cases, left_out = plan_cases(index["specs"], world, args.specs, sizes)
    cases = [c for c in cases if c.kind != "measure" or c.about["size"] in wanted_sizes(args, c)]
    others = []
    if args.peers:
        cases = [replace(c, limit=PEER) if c.kind == "measure" else c for c in cases]
        others = beside(cases)
    cases = [Case(f"planted {how}", "planted", PLANTED, {"how": how}) for how in args.plant] + cases
    made = {
        "date": time.strftime("%Y-%m-%d"), "world": world, "machine": machine,
        "predictions": index["predictions"].get(str(world), {}), "predicted_for": index["predicted_for"],
        "cases": [as_record(o) for o in left_out], "peers": versions(args.peers) if args.peers else {},
    }  # fmt: skip

    def say(outcome: Outcome) -> None:
        if outcome.found.keys() == {"untimed"}:
            return  # the reason stands once below the bits
        spent = time.monotonic() - began
        said = " ".join(filter(None, (outcome.how, outcome.why, str(dict(outcome.found or "")).strip("{}"))))
        print(f"[{spent:4.0f} s] {outcome.case.name}: {said}", flush=True)

    def keep(outcome: Outcome) -> None:
        say(outcome)
        made["cases"].append(as_record(outcome))
        if args.json:
            Path(args.json).write_text(json.dumps(made, indent=1), encoding="utf-8")

    largest = {key.split(".")[0]: max(sizes) for key, (_, sizes) in MEASURED.items()}
    with tempfile.TemporaryDirectory(prefix="chunkdsl-") as folder:
        task = {"device": args.device, "world": world, "rows": largest, "peers": args.peers}
        starter = Starter(folder, task, os.path.abspath(args.build))
        if args.device == "cuda":
            modules = [c for c in cases if "stem" in c.about]
            compile_ahead(modules, starter, machine["gpus"], COMPILING * args.seconds, say)
        slowness = SLOWNESS if args.device == "cpu" else 1
        start = slowness * (PEER_START if args.peers else START)
        for todo in [cases, *others]:
            todo = [c if c.kind == "planted" else replace(c, limit=slowness * c.limit) for c in todo]
            run_cases(todo, starter, args.seconds - (time.monotonic() - began), start, keep)
    made["seconds"] = round(time.monotonic() - began)
    return made


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=0, help="default: as many ranks as there are GPUs; 2 on the CPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--specs", type=lambda text: text.split(","), default=[],
                        help="default: all in specs/ and what is measured")  # fmt: skip
    parser.add_argument("--build", default="build/gpu")
    parser.add_argument("--peers", type=lambda text: os.path.abspath(text) if text else "", default="", metavar="DIR",
                        help="a folder with packages of other peers (other_peers.py), measured beside")  # fmt: skip
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[],
                        help="of the rows that are measured; default: all")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.0,
                        help=f"for everything; default: {SECONDS:.0f}, with --peers {SECONDS_BESIDE:.0f}")  # fmt: skip
    parser.add_argument("--json", default="")
    parser.add_argument("--table", default="", metavar="JSON", help="print an earlier run, and do nothing else")
    parser.add_argument("--plant", action="append", default=[], choices=("hang", "die", "raise"),
                        help="a case that goes wrong, before the others")  # fmt: skip
    args = parser.parse_args(argv)
    args.seconds = args.seconds or (SECONDS_BESIDE if args.peers else SECONDS)
    args.specs = args.specs or (list(OTHERS) if args.peers else [])
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    if args.table:
        print(show(json.loads(Path(args.table).read_text(encoding="utf-8"))))
        return 0
    if args.peers and not os.path.isdir(args.peers):
        raise SystemExit(f"there is no folder {args.peers}")
    if args.device == "cuda":
        from local_ranks import refuse_multicast

        refuse_multicast()
        os.environ.pop("TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP", None)  # hangs in the second replay of a graph
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that groups are killed on the way out
    made = run(args)
    if args.json:
        Path(args.json).write_text(json.dumps(made, indent=1), encoding="utf-8")
    print("\n" + show(made))
    return int(failed(made))


if __name__ == "__main__":
    sys.exit(main())
