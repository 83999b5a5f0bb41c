"""A folder of modules made beforehand, for a machine that has GPUs but not what chunkdsl needs to read a spec: for each
spec STEM.kit.json, the modules that it names, and STEM.tuned.json, the results (evidence.py) as they come in.

    {"format": "chunkdsl tuning kit", "version": 1, "path": "specs/tp_mlp.chunk", "spec": sha256, "chunkdsl": "0.1.0",
     "world": [2], "ranges": [["M", 1, 16384, 1], ...],
     "ops": [{"op": "mlp", "calls": [{"M": 4096}, ...], "settings": [[{"all_gather": {...}}, "tp_mlp.0.py"], ...]}]}

Settings stand in the order in which they are tried, the untuned one first. Nothing here reads a spec or needs one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import product

from chunkdsl.ir.meshes import World, sizes
from chunkdsl.ir.types import DimRange
from chunkdsl.plan.schedule import Schedule
from chunkdsl.record import record
from chunkdsl.replace import replace_file
from chunkdsl.tune.evidence import Malformed, Setting, Sizes, Tuned
from chunkdsl.tune.gpu import NoModule, module_text
from chunkdsl.tune.scores import compared_sizes, table
from chunkdsl.tune.search import Candidates, Job

FORMAT, VERSION, ENDING = "chunkdsl tuning kit", 1, ".kit.json"
MOST = 24  # settings of an op


@record(eq=False)
class Listed:
    """The candidates of an op: all of one step, whatever was found. `files`: the module of each."""

    name: str
    calls: tuple[Sizes, ...]
    ranges: dict[str, DimRange]
    files: dict[Setting, str]

    steps = 1

    @property
    def base(self) -> Setting:
        return next(iter(self.files))

    @property
    def count(self) -> int:
        return len(self.files)

    def step(self, i: int, best: Setting) -> list[Setting | None]:
        return list(self.files)[1:]


@record(eq=False)
class Kit:
    """What was prepared of one spec. `folder`: where its modules lie."""

    folder: str
    spec: str
    digest: str
    chunkdsl: str
    world: World
    found: tuple[Listed, ...]

    def path(self, job: Job) -> str:
        """As gpu.Modules wants it."""
        return os.path.join(self.folder, job.space.files[job.setting])


def kit_path(folder: str, spec: str) -> str:
    return os.path.join(folder, os.path.splitext(os.path.basename(spec))[0] + ENDING)


def settings_of(space: Candidates, most: int = MOST) -> list[Setting]:
    """The untuned setting, each other value beside it, and then combinations of values of several collectives and
    products, those that come early in their steps first; at most so many."""
    beside = [space.step(i, space.base) for i in range(space.steps)]
    found = [space.base]
    rounds = max(map(len, beside), default=0)
    found += [s for n in range(rounds) for step in beside for s in step[n : n + 1] if s is not None]
    several = product(*([None, *(s for s in step if s is not None)] for step in beside))
    for chosen in sorted(several, key=lambda c: sum(beside[i].index(s) + 1 for i, s in enumerate(c) if s is not None)):
        found.append(_together(space.base, [s for s in chosen if s is not None]))
    return list(dict.fromkeys(found))[:most]


def _together(base: Setting, others: Sequence[Setting]) -> Setting:
    """The base with what each of the others changes of one collective or product."""
    parts = {label: {s for s in base if s[0] == label} for label, *_ in base}
    for other in others:
        labels = {s[0] for s in {*base, *other}}
        for label in labels:
            theirs = {s for s in other if s[0] == label}
            if theirs != {s for s in base if s[0] == label}:
                parts[label] = theirs
    return tuple(sorted(s for part in parts.values() for s in part))


def write_kit(
    folder: str, made: Schedule, found: Sequence[Candidates], world: World, version: str, most: int,
    tell: Callable[[int, int, str], None],
) -> str:  # fmt: skip
    """Writes modules and index, the index last; its path. `tell(done, total, text)` after each module. What is not
    proven for the ranks is left out. OSError where the folder cannot be written."""
    os.makedirs(folder, exist_ok=True)
    stem = os.path.splitext(os.path.basename(made.path))[0]
    wanted = [(space, setting) for space in found for setting in settings_of(space, most)]
    ops: dict[str, dict] = {}
    for i, (space, setting) in enumerate(wanted):
        listed = ops.setdefault(space.name, {"op": space.name, "calls": [dict(c) for c in space.calls], "settings": []})
        name = f"{stem}.{space.name}.{len(listed['settings'])}.py"
        try:
            text = module_text(made, world, Job(space, setting, space.calls))
        except NoModule:
            continue
        replace_file(os.path.join(folder, name), text.encode())
        listed["settings"].append([nested(setting), name])
        tell(i + 1, len(wanted), space.name)
    ranges = [[r.name, r.low, r.high, r.step] for r in made.ranges]
    head = {"format": FORMAT, "version": VERSION, "path": made.path, "spec": made.digest, "chunkdsl": version}
    data = {**head, "world": list(sizes(world)), "ranges": ranges, "ops": [o for o in ops.values() if o["settings"]]}
    path = kit_path(folder, made.path)
    replace_file(path, (json.dumps(data, indent=1) + "\n").encode())
    return path


def listed_in(tuned: Tuned, world: World, ranges: Sequence[DimRange]) -> list[Listed]:
    """What was measured on so many ranks, as candidates of which nothing is left to try."""
    found = []
    for op in dict.fromkeys(r.op for r in tuned.results if r.world == world):
        known = table(tuned, op, world)
        found.append(Listed(op, compared_sizes(known), {r.name: r for r in ranges}, dict.fromkeys(known, "")))
    return found


def nested(setting: Setting) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for label, key, text in setting:
        found.setdefault(label, {})[key] = text
    return found


def read_kit(path: str) -> Kit:
    """What `write_kit` wrote. Malformed for anything else, OSError where there is nothing to read."""
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"it is not JSON ({str(error)[:100]})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise Malformed(f'it is no "{FORMAT}" of version {VERSION}')
    try:
        ranges = {name: DimRange(name, int(low), int(high), int(step)) for name, low, high, step in data["ranges"]}
        world = tuple(map(int, data["world"]))
        found = tuple(_listed(o, ranges) for o in data["ops"])
        texts = [data[key] for key in ("path", "spec", "chunkdsl")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {str(error)[:80]}"
        raise Malformed(f"something is missing or of the wrong kind ({why})") from None
    if not all(isinstance(t, str) for t in texts) or not 1 <= len(world) <= 2 or not found:
        raise Malformed("something is missing or of the wrong kind")
    return Kit(os.path.dirname(path), *texts, world[0] if len(world) == 1 else world, found)


def _listed(data: dict, ranges: dict[str, DimRange]) -> Listed:
    calls = tuple(tuple((name, int(value)) for name, value in call.items()) for call in data["calls"])
    files = {}
    for keys, name in data["settings"]:
        if os.path.basename(name) != name:
            raise ValueError(f"{name} lies elsewhere")
        setting = tuple(sorted((label, k, text) for label, part in keys.items() for k, text in part.items()))
        files[setting] = name
    if not files or not calls:
        raise ValueError("an op has no settings or no calls")
    return Listed(str(data["op"]), calls, ranges, files)
