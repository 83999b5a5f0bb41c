"""SPEC.tuned.json: what was measured, on which GPU, with which versions; as data and as text.

    {"format": "chunkdsl tuned", "version": 2, "spec": sha256 of the spec and its plan files, "gpu": "NVIDIA H200",
     "rehearsal": false, "versions": {"chunkdsl": "0.1.0", "torch": ..., "triton": ...},
     "results": [{"op": "mlp", "world": [2], "sizes": {"M": 4096},
                  "setting": {"all_gather": {"chunk": "2 MiB"}, ...},
                  "us": [...], "library": [...], "eager_us": [...], "eager_library": [...],
                  "compared": true, "failed": ""}, ...]}

Times are microseconds of one call, the slowest rank's, a number a round; `library` are those of the process group's
collectives and the library's GEMM in the same rounds. The first two are of calls in CUDA graphs, the others of calls
one by one; a clock that knows no such calls (the cost model) leaves them out. A key that a setting leaves out is as the
rules have it. Which setting is best follows from the results (search.py), and so do the gates (gates.py): neither is
written down. A file has the results of one GPU.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from chunkdsl.ir.meshes import World, sizes
from chunkdsl.record import record

FORMAT, VERSION = "chunkdsl tuned", 2

Setting = tuple[tuple[str, str, str], ...]  # (collective or product, key, value as a policy writes it), in order
Sizes = tuple[tuple[str, int], ...]  # run-time dims of a call


class Malformed(ValueError):
    """The text is not such a file. The message says why."""


@record
class Result:
    """One setting of an op, measured at one size. `failed`: why there are no times. `compared`: whether settings are
    compared at this size; else it was measured for the gate, of the best setting alone, at a further size or again."""

    op: str
    world: World
    sizes: Sizes
    setting: Setting
    us: tuple[float, ...] = ()
    library: tuple[float, ...] = ()
    failed: str = ""
    eager_us: tuple[float, ...] = ()
    eager_library: tuple[float, ...] = ()
    compared: bool = True

    @property
    def ratio(self) -> float:
        """How many times as long as the library's way, in CUDA graphs; for ever where it failed. Both were measured in
        turns, so that what drifts (clocks, temperature) is in both."""
        return statistics.median(self.us) / statistics.median(self.library) if self.us else float("inf")

    @property
    def eager_ratio(self) -> float | None:
        """The same of calls one by one; None where these were not measured."""
        if self.failed or not self.eager_us:
            return self.ratio if self.failed else None
        return statistics.median(self.eager_us) / statistics.median(self.eager_library)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of every way of calling that was measured."""
        return (self.ratio,) if self.eager_ratio is None else (self.ratio, self.eager_ratio)


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
        "us": list(r.us), "library": list(r.library), "eager_us": list(r.eager_us),
        "eager_library": list(r.eager_library), "compared": r.compared, "failed": r.failed,
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
    us, library, *eager = (_numbers(data, key, lambda t: type(t) in (int, float) and 0 < t < 1e12)
                           for key in ("us", "library", "eager_us", "eager_library"))  # fmt: skip
    failed = _of(data, "failed", str)
    unlike = len(us) != len(library) or len(eager[0]) != len(eager[1]) or len(eager[0]) > len(us)
    if not 1 <= len(world) <= 2 or unlike or bool(us) == bool(failed):
        raise Malformed("a result has no world size, or rounds without times of both, or neither times nor a failure")
    ranks: World = world[0] if len(world) == 1 else world
    called = _of(data, "op", str), ranks, _pairs(data, "sizes", int), tuple(sorted(setting))
    return Result(*called, us, library, failed, *eager, compared=_of(data, "compared", bool))


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
