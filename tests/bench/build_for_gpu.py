"""Builds what the programs of tests/gpu and tests/bench load on a machine without chunkdsl's dependencies, into one
folder to carry there: the modules, and `index.json`, which says what they hold and what the cost model predicts.

    python tests/bench/build_for_gpu.py [-o build/gpu] [--only tp_mlp,gemm_ar]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from multi_rows import FOLDERS, MEASURED, ROOT, checked_spec, predicted, spec_path

from chunkdsl import pipeline
from chunkdsl.check.worlds import served
from chunkdsl.cost.constants import default_gpu
from chunkdsl.ir.meshes import built_for
from chunkdsl.render.write import module_path, write_module

PREDICTED = range(2, 9)  # world sizes
MEASURED_BESIDE = ("small_ar",)  # what is measured beside the shipped specs
INDEX = "index.json"


def entry(schedule, worlds) -> dict:
    """What the index says of a module: its ops, the world sizes that it runs on ([outer, inner] of two axes), and
    whether its spec is one that we ship."""
    is_shipped = Path(schedule.path).stem in shipped()
    return {"ops": [op.name for op in schedule.ops], "worlds": list(worlds), "shipped": is_shipped}


def index(specs: dict, worlds) -> dict:
    """The whole index, with predictions for these world sizes."""
    rows = {key: sizes for key, sizes in MEASURED.items() if key.split(".")[0] in specs}
    return {"specs": specs, "predictions": predicted(worlds, rows), "predicted_for": default_gpu("nvlink").upper()}


def index_unbuilt(stems: list[str], worlds) -> dict:
    """The same of specs that nothing was built of, for ranks that are simulated: sizes that they can be run on."""
    made = {stem: checked_spec(stem) for stem in stems or [*shipped(), *MEASURED_BESIDE]}
    specs = {stem: entry(s, [w for w in built_for(s.mesh) if served(s, w)]) for stem, s in made.items()}
    return index(specs, worlds)


def shipped() -> list[str]:
    """The specs in `specs/`, by their stems."""
    return sorted(p.stem for p in (ROOT / "specs").glob("*.chunk"))


def build(path: str, folder: str) -> tuple[str, dict]:
    """(stem, entry) of a module that is written. SystemExit for a spec with errors."""
    made = pipeline.build(path)
    if made.report.failed:
        raise SystemExit(f"{path}: {[d.message for d in made.report.diagnostics]}; see `chunkdsl check {path}`")
    write_module(module_path(folder, path), made.module)
    return Path(path).stem, entry(made.schedule, made.proven)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="folder", default="build/gpu")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    args = parser.parse_args(argv)
    folder = os.path.abspath(args.folder)
    os.chdir(ROOT)  # a module names its spec by the path that it was built from
    paths = sorted(str(p) for f in FOLDERS for p in Path(f).glob("*.chunk"))
    if args.only:
        paths = [os.path.relpath(spec_path(stem), ROOT) for stem in args.only]
    with ProcessPoolExecutor() as pool:
        specs = {}
        for stem, found in pool.map(build, paths, [folder] * len(paths)):
            specs[stem] = found
            print(f"{stem}: {', '.join(found['ops'])}", flush=True)
    Path(folder, INDEX).write_text(json.dumps(index(specs, PREDICTED), indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
