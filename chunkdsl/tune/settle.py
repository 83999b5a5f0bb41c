"""What a build takes from the file beside a spec: for every key that was tuned the value that was measured as fastest,
and a gate for each number of ranks that was measured. Everything else is as the cost model has it.

A module has one setting for all its sizes and ranks: the best of those measured on as many ranks as the mesh declares,
else on the most. The gate goes by size (gates.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace

import chunkdsl
from chunkdsl.check import tuning as rules
from chunkdsl.cost.choose import trials_of
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.meshes import World, in_order, ranks_of, world_text
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.schedule import Schedule
from chunkdsl.plan.settled import Gate, Settled, Settlement, Tuning
from chunkdsl.plan.summary import gate_text
from chunkdsl.tune.evidence import Malformed, Setting, Tuned, load
from chunkdsl.tune.gates import CAPTURED, EAGER, gate_of, gate_reason
from chunkdsl.tune.scores import ranking, table
from chunkdsl.tune.space import Space, keys_of, labels, part_of, schedule_of, settlement_of

LARGEST = 16 << 20  # bytes of a file


def tuned_path(spec: str) -> str:
    """`specs/tp_mlp.chunk` -> `specs/tp_mlp.tuned.json`."""
    return f"{os.path.splitext(spec)[0]}.tuned.json"


def read_tuned(path: str, report: Report) -> Tuned | None:
    """The file, None where there is none; what is wrong with it is reported (CD034)."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise Malformed(f"it is larger than {LARGEST >> 20} MiB")
        return load(data.decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        report.add(rules.unreadable_tuned_file(path, "it is not UTF-8 text"))
    except Malformed as error:
        report.add(rules.unreadable_tuned_file(path, str(error)))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        report.add(rules.unreadable_tuned_file(path, getattr(error, "strerror", None) or str(error)))
    return None


def usable(tuned: Tuned, path: str, made: Schedule, report: Report) -> bool:
    """Whether a build takes the file; why not is reported (CD035, CD038)."""
    command, theirs = f"chunkdsl tune {made.path}", dict(tuned.origin.versions).get("chunkdsl")
    if tuned.origin.digest != made.digest:
        report.add(rules.stale_tuned_file(path, "the spec has changed since", command))
    elif theirs != chunkdsl.__version__:
        why = f"it was measured with chunkdsl {theirs}, this is {chunkdsl.__version__}"
        report.add(rules.stale_tuned_file(path, why, command))
    elif tuned.origin.rehearsal:
        report.add(rules.tuned_in_rehearsal(path, f"its times are those of {tuned.origin.gpu}"))
    else:
        return True
    return False


def settle_tuned(program: Program, made: Schedule, by_model: Settlement, path: str, report: Report) -> Settlement:
    """What the model says, and what was measured in its place. `made`: the schedule by the rules."""
    tuned = read_tuned(path, report)
    if tuned is None or not usable(tuned, path, made, report):
        return by_model
    found, worlds = Settlement(by_model), set()
    for op, trials in trials_of(program, made):
        measured = {r.world for r in tuned.results if r.op == op.name}
        if not measured:
            continue
        world = made.world if made.world in measured else max(in_order(measured), key=ranks_of)
        order = ranking(tuned, op.name, world)
        space = Space(op, trials, (), ())
        if not order or schedule_of(space, order[0][1]) is None:
            why = f"no setting of {op.name} was measured whole, or the best one is not legal"
            report.add(rules.stale_tuned_file(path, why, f"chunkdsl tune {made.path}"))
            continue
        worlds |= measured
        told = _Told(tuned, op.name, world)
        _take(found, space, order[0][1], told)
        if _gate_is_open(op):
            _take_gates(found, op, by_model.get((op, "fuse_from")), tuned, made.world)
    if not worlds:
        return by_model
    found.tuning = _tuning(tuned, sorted(worlds, key=ranks_of), path)
    return found


def _tuning(tuned: Tuned, worlds: list[World], path: str) -> Tuning:
    digest = hashlib.sha256(repr(tuned).encode()).hexdigest()[:16]
    bound: dict[str, set[int]] = {}
    for name, value in (pair for r in tuned.results for pair in r.sizes):
        bound.setdefault(name, set()).add(value)
    sizes = [f"{name} = {', '.join(map(str, sorted(values)))}" for name, values in bound.items()]
    rounds = min((len(r.us) for r in tuned.results if r.us and r.compared), default=0)
    count = f"{rounds} round{'s' * (rounds != 1)} of each"
    with_ = ", ".join(f"{name} {version}" for name, version in tuned.origin.versions)
    ranks = " and ".join(map(world_text, worlds))
    said = "; ".join([f"on {ranks} x {tuned.origin.gpu}", *sizes, count, with_])
    return Tuning(f"{said} ({os.path.basename(path)}, sha256 {digest})", digest)


class _Told:
    """How what was found for an op is told."""

    def __init__(self, tuned: Tuned, op: str, world: World) -> None:
        self.order = ranking(tuned, op, world)
        known = table(tuned, op, world)
        plain = next((score for score, setting in self.order if setting == next(iter(known))), self.order[0][0])
        gain = plain[0] / self.order[0][0][0] - 1
        best = f"{100 * gain:.1f} % faster than untuned, " if gain > 0 else ""
        self.why = f"tuned: {best}best of {len(known)} settings"

    def runner_up(self, label: str, key: str, text: str) -> tuple[str, float]:
        """The best that was measured with another value of a key, and how much slower it was."""
        for score, setting in self.order:
            other = dict(part_of(setting, label)).get(key, "")
            if other and other != text:
                return other, score[0] / self.order[0][0][0] - 1
        return "", 0.0


def _take(found: Settlement, space: Space, setting: Setting, told: _Told) -> None:
    """The setting in place of what the model says of its op."""
    named: Mapping[str, Value] = labels(space.trials)
    mine, said = settlement_of(space, setting, told.why) or {}, {}
    space.trials.schedule(mine, {}, said)  # beside calls of the library the rules say other things
    for label, v in named.items():
        for key in keys_of(v):
            found.pop((v, key), None)
            settled = mine.get((v, key))
            if settled is None and (v, key) in said:  # as the rules have it
                settled = Settled(None, said[v, key][1].value, told.why)
            if settled is not None:
                runner_up, margin = told.runner_up(label, key, settled.shown)
                found[v, key] = replace(settled, runner_up=runner_up, margin=margin)


def _take_gates(found: Settlement, op: Op, by_model: Settled | None, tuned: Tuned, here: World) -> None:
    """Gates of calls in CUDA graphs, and of others where such were measured. `here`: what the mesh declares."""
    measured = {r.world for r in tuned.results if r.op == op.name}
    for key, way in (("fuse_from", CAPTURED), ("eager_from", EAGER)):
        gates = {at: g for at in measured if (g := gate_of(tuned, op.name, at, (way,)))}
        if gates:
            why = gate_reason(tuned, op.name, here, (way,)) if here in gates else by_model.why if by_model else ""
            found[op, key] = _merged(by_model, gates, here, why)


def _gate_is_open(op: Op) -> bool:
    return not any(v.policy.fuse_from or v.policy.fallback not in (None, "nccl") for v in values_of(op))


def _merged(by_model: Settled | None, gates: Mapping[World, FuseFrom], here: World, why: str) -> Settled:
    """Measured gates for the ranks that were measured, the model's for the others."""
    model: Gate = by_model.value if by_model and by_model.value else Gate(FuseFrom(0), "nccl")
    rows: tuple[tuple[World, FuseFrom], ...] = ()
    for world in in_order({*gates, *(world for world, _ in model.by_world)}):
        gate = gates.get(world, model.at(world))
        if gate != Gate(FuseFrom(0), "nccl", rows).at(world):
            rows = (*rows, (world, gate))
    gate = Gate(model.fuse_from, "nccl", rows)
    gate = replace(gate, fuse_from=gate.at(here) if rows else FuseFrom(0))
    return Settled(gate, gate_text(gate.fuse_from), why)

