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

from multi_rows import MEASURED, ROOT, checked_spec, predicted, spec_path

from chunkdsl import pipeline
from chunkdsl.check.worlds import served
from chunkdsl.ir.meshes import built_for
from chunkdsl.render.write import module_path, write_module

FOLDERS = ("specs", "tests/gpu/specs", "tests/bench/specs")
PREDICTED = range(2, 9)  # world sizes
INDEX = "index.json"


def entry(schedule, worlds) -> dict:
    """What the index says of a module: its ops, and the world sizes that it runs on ([outer, inner] of two axes)."""
    return {"ops": [op.name for op in schedule.ops], "worlds": list(worlds)}


def index_unbuilt(stems: list[str]) -> dict[str, dict]:
    """The same of specs that nothing was built of, for ranks that are simulated: sizes that they can be run on."""
    made = {stem: checked_spec(stem) for stem in stems}
    return {stem: entry(s, [w for w in built_for(s.mesh) if served(s, w)]) for stem, s in made.items()}


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="folder", default="build/gpu")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    args = parser.parse_args()
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
    rows = {key: sizes for key, sizes in MEASURED.items() if key.split(".")[0] in specs}
    text = json.dumps({"specs": specs, "predictions": predicted(PREDICTED, rows)}, indent=1)
    Path(folder, INDEX).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
