"""Runs the kernels of `evidence` and writes docs/kernels.md: by hand, as it takes an hour.

    PYTHONPATH=. python tests/kernels/evidence_table.py                  # all of them
    PYTHONPATH=. python tests/kernels/evidence_table.py --only attention --worlds 2,4

What was run is kept in `evidence.json` beside this file, so that parts can be run anew. `test_evidence.py` looks at a
part of what follows from the specs alone, and that the page is made of that file.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import os
import sys
import tempfile
from datetime import date
from pathlib import Path

from evidence import FUSED, REFUSED
from kernel_specs import checked
from test_fused_kernels import failures_of

from chunkdsl.kernels.order import Order
from chunkdsl.render.module import render_module

ROOT = Path(__file__).parents[2]
PAGE, KEPT = ROOT / "docs" / "kernels.md", Path(__file__).with_name("evidence.json")
LIBRARIES = KEPT.with_name("libraries.json")
WORLDS, TARGETS = ("2", "4", "8"), ("sm_80", "sm_90", "sm_100")
ROWS = (21, 1)  # of a shard, in two calls
READS = {"block": "its block of rows", "wrap": "its block, surplus rows modulo", "whole": "any rows"}
TEXT = """# Users' kernels that were tried

Single-GPU kernels with the structures of Triton's tutorials and of libraries, in [`tests/kernels/`](../tests/kernels)
and [`specs/kernels/`](../specs/kernels). None knows of ranks.

- Found: what running the kernel's index arithmetic gave.
- Lines: those of the kernel that the rewriting changed or added. Waits stand before each program, or in a loop.
- Ranks: the simulated world sizes that were run, with shards of {rows} rows and of one. Bit for bit the results are
  those of the untouched kernel after whole collectives, they are near those of that kernel on whole tensors, and what
  ran is what the plan says.
- Compiled: targets for which the rewritten and the untouched kernel compile ahead of time and pass the lints.
- Last run: the newest date of a run, and what ran then where that is not all of it; the rest ran on earlier code.

`PYTHONPATH=. python tests/kernels/evidence_table.py` made this page, by hand; CI checks a part of it.

| kernel | found | lines | waits | ranks | compiled | last run |
| --- | --- | --- | --- | --- | --- | --- |
{fused}

Refused, at a line of the kernel or of the spec:

| kernel | diagnostic |
| --- | --- |
{refused}
"""
ONE_WAY = """
## One way

A product that the compiler brings along and a kernel of a user differ in what fills a tile (`_product.py.jinja`, or the
author's own text) and in what says which rows a tile touches (the tile's shape, or the footprint). Everything else is
the same code, and [`test_one_way.py`](../tests/kernels/test_one_way.py) holds the two against each other: the same product
written both ways has the same transfers, staging, buffers and flags, plans that are equal task by task (also what each
task waits for, signals and touches), and modules whose functions are the same text but for those of the tile.

| what | where |
| --- | --- |
| gathers, destinations, policies and what `auto` becomes | `chunkdsl/lower/`: `KernelTiles` (`kernel_tiles.py`) is a layer of the class that schedules products |
| tickets, waits, signals, movers | `chunkdsl/runtime/` (`take`, `wait_flag`, `set_flag`, `arrive`), `templates/triton/tiles.py.jinja` |
| the wrapper: construction, call, `exact`, fallback | `templates/triton/operation.py.jinja` |
| plan, proof, refutations | `chunkdsl/plan/unroll.py`, `chunkdsl/check/prove/` |
| simulated ranks, races, conformance | `chunkdsl/sim/` |
| compilation ahead of time, lints | `chunkdsl/aot/`; for text that is not ours, lints of style are left out (`of_a_user`) |
| cost, timeline | `chunkdsl/cost/`, from the footprint's work |

## From Python

The same without a spec, for those who live in code; all that follows from a call is in the [language
reference](../grammars/README.md#from-python). What is written here is run by a test:

```python
import torch
import triton

from chunkdsl import ChunkSchedule, compile
from matmul import matmul_kernel  # specs/kernels/matmul.py: a tutorial's product, which knows of no rank

schedule = ChunkSchedule(
    collective_type="all_gather", chunk_size_bytes=3072, world_size=2, overlap_policy="swizzle", max_rows=64
)
fused = compile(kernel=matmul_kernel, schedule=schedule, target_backend="triton")


def grid(meta):
    return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)


def call(rank):
    shard = A[rank * 20 : rank * 20 + 20]  # this rank's rows
    return shard, B, torch.empty(M, N, dtype=A.dtype), M, N, K, K, 1, N, 1, N, 1


M, N, K = 40, 64, 64
A, B = torch.ones(M, K, dtype=torch.bfloat16), torch.eye(K, N, dtype=torch.bfloat16)
# On GPUs each rank does `fused[grid](*call(rank), BM=32, ...)`; here two of them run on the CPU.
C, _ = fused[grid].simulate([call(0), call(1)], BM=32, BN=32, BK=32, GROUP=8)
```

`compile(kernel, "up.chunk")` returns the module of a spec that names the kernel, and `@compile(schedule=...)` over
`@triton.jit` decorates.
"""
LIBRARIES_TEXT = """
## Kernels of libraries, run as they are

From the files that the libraries install: `tests/kernels/library_kernels.py` says how, and made this table, by hand.
Nothing of a library is changed, imported or kept here: a spec names the file. Columns mean what they mean above.
Where a file imports one name in several ways, under `if` or `try`, a module takes the first that is here, and says so
behind the import; branches that a spec's constants rule out (`if ACTIVATION == "gelu"`) need not have what they name;
decorators around `@triton.jit` are left out, also a library's own; `if ...: return` becomes `if ...: pass`, `else:` and
the rest, moved to the right. Lines: without those that were only moved.

{versions}

| library, kernel | as | found | lines | waits | ranks | compiled | last run |
| --- | --- | --- | --- | --- | --- | --- | --- |
{fused}

Refused, at a line of the library:

| library, kernel | diagnostic |
| --- | --- |
{refused}
"""


def body_of(text):
    return body_in(checked(text))


def body_in(made):
    assert [d.message for d in made.report.diagnostics] == []
    return made, next(n for n in made.schedule.ops[0].launches if n.body)


def facts(launch) -> dict[str, str]:
    """What follows from a spec alone: the columns found, lines and waits."""
    body = launch.body
    modes = {t.gathered for t in body.tensors if t.gathered}
    if body.turns:
        loops = [f"a loop over blocks of {t.each} rows, upwards" for t in body.turns]
        found = loops[0] if len(loops) == 1 else f"{len(loops)} loops one behind the other, each over blocks of " + (
            " and ".join(dict.fromkeys(str(t.each) for t in body.turns)) + " rows, upwards")
    elif not body.block:
        found = "any rows"
    else:
        found = f"blocks of {body.block} row{'s' * (body.block > 1)}, {Order(*body.order)}"
        found += "".join(f"; reads {READS[m]}" for m in sorted(modes))
    before = [line.strip() for name, text in body.untouched for line in text.splitlines()]
    after = [line.strip() for name, text in body.by_ticket for line in text.splitlines()]
    added = [d for d in difflib.ndiff(before, after) if d.startswith("+ ")]
    waits = "in the loop" if body.turns else "before a program" if modes else "none; it signals"
    if not modes and launch.destination.kind == "local":
        waits = "in a launch before"
    return {"found": found, "lines": str(len(added)), "waits": waits}


def refusal(text) -> str:
    """Code and message of the first finding."""
    found = checked(text).report.diagnostics[0]
    return f"{found.code}: {found.message}"


def compiled(made, target: str) -> list[str]:
    """Findings for one target; none when all is well."""
    from chunkdsl.aot.lints import lint
    from chunkdsl.aot.record import RecordingMachine
    from chunkdsl.aot.targets import CompileError, compile_kernel
    from chunkdsl.verify.compile import is_fused, of_a_user

    text = render_module(made.schedule, (2,))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence_module.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("evidence_module", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["evidence_module"] = module
        spec.loader.exec_module(module)
        machine = RecordingMachine(rank=0, world=2, target=target)
        module.Zoo(machine=machine)
        wanted = [u for u in machine.uses if is_fused(u) and u.name.startswith("f_op")]
        untouched = {n.body.function for n in made.schedule.ops[0].launches if n.body}
        wanted += [u for u in machine.uses if u.name in untouched]
        try:
            return [str(f) for u in wanted for f in lint(compile_kernel(u, target), target, text, of_a_user(u, target))]
        except CompileError as error:
            return [str(error)]


def run(made, worlds, targets) -> dict:
    """What `check` gave for one of these specs, run."""
    made, launch = body_in(made)
    row = facts(launch)
    for world in worlds:
        with tempfile.TemporaryDirectory() as folder:
            row[world] = failures_of(made, Path(folder), int(world), dims=ROWS)
    for target in targets:
        row[target] = compiled(made, target)
    return row | {"on": dict.fromkeys((*worlds, *targets), date.today().isoformat())}


def merged(old: dict, new: dict) -> dict:
    """A row after another run, which may be of a part."""
    return old | new | {"on": old.get("on", {}) | new["on"]}


def columns(row: dict) -> str:
    def held(keys):
        return " ".join(k for k in keys if row.get(k) == []) or "none"

    on = {k: row["on"].get(k, "") for k in (*WORLDS, *TARGETS) if k in row}
    newest = max(on.values())
    part = [k for k in on if on[k] == newest]
    last = (newest or "earlier") + (": " + " ".join(part)) * (len(part) < len(on))
    return f"{row['found']} | {row['lines']} | {row['waits']} | {held(WORLDS)} | {held(TARGETS)} | {last}"


def page(kept: dict, libraries: dict) -> str:
    """`libraries`: of `library_kernels.py`."""
    rows = [f"| {name} | {columns(row)} |" for name, row in kept["fused"].items()]
    refused = [f"| {name} | {text} |" for name, text in kept["refused"].items()]
    text = TEXT.format(rows=ROWS[0], fused="\n".join(rows), refused="\n".join(refused))
    rows = [f"| {name} | {role} | {columns(row)} |" for name, roles in libraries["fused"].items()
            for role, row in roles.items()]  # fmt: skip
    refused = [f"| {name} | {text} |" for name, text in libraries["refused"].items()]
    versions = "Versions: " + ", ".join(f"{n} {v}" for n, v in libraries["versions"].items()) + "."
    return text + LIBRARIES_TEXT.format(versions=versions, fused="\n".join(rows), refused="\n".join(refused)) + ONE_WAY


def load(path: Path = KEPT) -> dict:
    return json.loads(path.read_text()) if path.exists() else {"versions": {}, "fused": {}, "refused": {}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    args = parser.parse_args()
    os.chdir(ROOT)
    worlds, targets = (tuple(filter(None, a.split(","))) for a in (args.worlds, args.targets))
    for name in FUSED:
        if args.only in name:
            row = run(checked(FUSED[name]), worlds, targets)
            kept = load()
            kept["fused"][name] = merged(kept["fused"].get(name, {}), row)
            kept["fused"] = {n: kept["fused"][n] for n in FUSED if n in kept["fused"]}
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(name, {k: v for k, v in row.items() if v not in ([],)}, flush=True)
    kept = load()
    kept["refused"] = {name: refusal(text) for name, text in REFUSED.items()}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept, load(LIBRARIES)))


if __name__ == "__main__":
    main()
