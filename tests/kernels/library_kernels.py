"""Runs kernels of libraries as they are, from their installed files, and writes the table of docs/kernels.md: by hand.

    pip install --no-deps --target LIBRARIES liger-kernel==0.8.5 unsloth==2026.10.9 fla-core==0.6.0 flag-gems==5.0.2
    PYTHONPATH=. python tests/kernels/library_kernels.py LIBRARIES [--only liger] [--worlds 2,4,8] [--targets sm_90]

flash-attn and lightllm are no wheels: their folders `flash_attn` and `lightllm`, of clones, are put into LIBRARIES.
Nothing of a library is imported or kept here: `library_specs.py` names files, and what was found lies in
`libraries.json`. No test needs a library; `test_evidence.py` holds the page against that file.
"""

from __future__ import annotations

import argparse
import json
import os
from importlib.metadata import distributions
from pathlib import Path

from evidence_table import KEPT, LIBRARIES, PAGE, TARGETS, WORLDS, load, merged, page, run
from library_specs import CLONES, SPECS

from chunkdsl.pipeline import check_source
from chunkdsl.source import Source


def versions(folder: Path) -> dict[str, str]:
    """Of the libraries of SPECS: of wheels what they say, of clones which commit was taken."""
    found = {d.name.replace("_", "-"): d.version for d in distributions(path=[str(folder)])}
    names = dict.fromkeys(name.split(":")[0] for name in SPECS)
    return {name: found.get(name) or CLONES.get(name, "not found") for name in names}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="where the libraries are installed")
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    args = parser.parse_args()
    folder = args.folder.resolve()
    os.chdir(folder)
    worlds, targets = (tuple(filter(None, a.split(","))) for a in (args.worlds, args.targets))
    for name, roles in SPECS.items():
        for role, text in roles.items() if args.only in name else ():
            made = check_source(Source(str(folder / "zoo.chunk"), text))
            failed = made.report.failed
            row = None if failed else run(made, worlds, targets)
            kept = load(LIBRARIES)  # another process may have written
            kept["versions"] = versions(folder)
            if failed:
                kept["refused"][name] = "; ".join(f"{d.code}: {d.message}" for d in made.report.diagnostics)
            else:
                rows = kept["fused"].setdefault(name, {})
                rows[role] = merged(rows.get(role, {}), row)
            for part in ("fused", "refused"):
                kept[part] = {n: kept[part][n] for n in SPECS if n in kept[part]}
            LIBRARIES.write_text(json.dumps(kept, indent=1) + "\n")
            shown = kept["refused"][name] if failed else {k: v for k, v in row.items() if v != []}
            print(name, role, shown, flush=True)
    PAGE.write_text(page(load(KEPT), load(LIBRARIES)))


if __name__ == "__main__":
    main()
