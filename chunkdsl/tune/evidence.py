"""SPEC.tuned.json: what was measured, on which GPU, with which versions; as data and as text.

    {"format": "chunkdsl tuned", "version": 1, "spec": sha256 of the spec and its plan files, "gpu": "NVIDIA H200",
     "rehearsal": false, "versions": {"chunkdsl": "0.1.0", "torch": ..., "triton": ...},
     "results": [{"op": "mlp", "world": [2], "sizes": {"M": 4096},
                  "setting": {"all_gather": {"chunk": "2 MiB"}, ...},
                  "us": [...], "library": [...], "failed": ""}, ...]}

Times are microseconds of one call, the slowest rank's, a number a round; `library` are those of the process group's
collectives and the library's GEMM in the same rounds. A key that a setting leaves out is as the rules have it. Which
setting is best follows from the results (search.py) and is not written down. A file has the results of one GPU.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from chunkdsl.ir.meshes import World, sizes
from chunkdsl.record import record

FORMAT, VERSION = "chunkdsl tuned", 1

Setting = tuple[tuple[str, str, str], ...]  # (collective, key, value as a policy writes it), in order
Sizes = tuple[tuple[str, int], ...]  # run-time dims of a call


class Malformed(ValueError):
    """The text is not such a file. The message says why."""


@record
class Result:
    """One setting of an op, measured at one size. `failed`: why there are no times."""

    op: str
    world: World
    sizes: Sizes
    setting: Setting
    us: tuple[float, ...] = ()
    library: tuple[float, ...] = ()
    failed: str = ""

    @property
    def ratio(self) -> float:
        """How many times as long as the library's way; for ever where it failed. Both were measured in turns, so
        that what drifts (clocks, temperature) is in both."""
        return statistics.median(self.us) / statistics.median(self.library) if self.us else float("inf")


@record
class Origin:
    """What results must share to be compared. `gpu`: its name. `rehearsal`: ranks that share a GPU, or the cost model
    instead of one; `build` does not take such results."""

    digest: str
    gpu: str
    versions: tuple[tuple[str, str], ...]
    rehearsal: bool = False


@record
class Tuned:
    origin: Origin
    results: tuple[Result, ...] = ()

    def with_more(self, more: Iterable[Result]) -> Tuned:
        return Tuned(self.origin, (*self.results, *more))


def dump(tuned: Tuned) -> str:
    """The file: the same bytes for the same results, one result a line."""
    o = tuned.origin
    head = {"format": FORMAT, "version": VERSION, "spec": o.digest, "gpu": o.gpu, "rehearsal": o.rehearsal}
    head["versions"] = dict(o.versions)
    lines = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    results = ",".join("\n" + json.dumps(_result_json(r)) for r in tuned.results)
    return "{" + ",\n".join([*lines, f'"results": [{results}\n]']) + "}\n"


def _result_json(r: Result) -> dict:
    setting: dict[str, dict[str, str]] = {}
    for label, key, text in r.setting:
        setting.setdefault(label, {})[key] = text
    return {
        "op": r.op, "world": list(sizes(r.world)), "sizes": dict(r.sizes), "setting": setting,
        "us": list(r.us), "library": list(r.library), "failed": r.failed,
    }  # fmt: skip


def load(text: str) -> Tuned:
    """What `dump` wrote. Malformed for anything else, also for another version of the format."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is not JSON ({str(error)[:100]})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise Malformed(f'it does not say "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise Malformed(f"it has version {json.dumps(data.get('version'))[:40]} of the format, this reads {VERSION}")
    o = Origin(
        _of(data, "spec", str), _of(data, "gpu", str), _pairs(data, "versions", str), _of(data, "rehearsal", bool)
    )
    return Tuned(o, tuple(_load_result(r) for r in _of(data, "results", list)))


def _load_result(data: Any) -> Result:
    if not isinstance(data, dict):
        raise Malformed("a result is not an object")
    world = _numbers(data, "world", lambda n: type(n) is int and n > 0)
    setting = [(label, key, text) for label, keys in _of(data, "setting", dict).items()
               for key, text in _pairs({"setting": keys}, "setting", str)]  # fmt: skip
    us, library = (_numbers(data, key, lambda t: type(t) in (int, float) and 0 < t < 1e12) for key in ("us", "library"))
    failed = _of(data, "failed", str)
    if not 1 <= len(world) <= 2 or len(us) != len(library) or bool(us) == bool(failed):
        raise Malformed("a result has no world size, or rounds without times of both, or neither times nor a failure")
    ranks: World = world[0] if len(world) == 1 else world
    called = _of(data, "op", str), ranks, _pairs(data, "sizes", int), tuple(sorted(setting))
    return Result(*called, us, library, failed)


def _of(data: dict, key: str, kind: type) -> Any:
    value = data.get(key)
    if type(value) is not kind:
        raise Malformed(f'"{key}" is missing or of the wrong kind')
    return value


def _pairs(data: dict, key: str, kind: type) -> tuple:
    found = tuple(_of(data, key, dict).items())
    if any(type(value) is not kind for _, value in found):
        raise Malformed(f'a value in "{key}" is of the wrong kind')
    return found


def _numbers(data: dict, key: str, fits: Callable[[Any], bool]) -> tuple:
    found = tuple(_of(data, key, list))
    if not all(map(fits, found)):
        raise Malformed(f'a number in "{key}" is out of range')
    return found
