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
import re
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
LIBRARIES, TEXT = KEPT.with_name("libraries.json"), KEPT.with_name("kernels_page.md")
WORLDS, TARGETS = ("2", "4", "8"), ("sm_80", "sm_90", "sm_100")
ROWS = (21, 1)  # of a shard, in two calls
READS = {"block": "its block of rows", "wrap": "its block, surplus rows modulo", "whole": "any rows"}


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
    parts = {
        "ROWS": [str(ROWS[0])],
        "VERSIONS": [", ".join(f"{name} {version}" for name, version in libraries["versions"].items())],
        "LIBRARIES_FUSED": [f"| {name} | {role} | {columns(row)} |" for name, roles in libraries["fused"].items()
                            for role, row in roles.items()],
        "LIBRARIES_REFUSED": [f"| {name} | {text} |" for name, text in libraries["refused"].items()],
        "FUSED": [f"| {name} | {columns(row)} |" for name, row in kept["fused"].items()],
        "REFUSED": [f"| {name} | {text} |" for name, text in kept["refused"].items()],
    }  # fmt: skip
    return re.sub(rf"\b({'|'.join(parts)})\b", lambda found: "\n".join(parts[found[0]]), TEXT.read_text())


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
