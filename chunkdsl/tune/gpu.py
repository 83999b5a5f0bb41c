"""The clock that measures: processes with a GPU each (group.py, worker.py), to which it sends one module after the
other. What fails on any rank fails on all, and is a result too: it is not tried again. Who hangs or dies is a failure
of the setting at hand, and the processes are started anew for the next one.

Modules come from `Rendered`, which proves a setting for these ranks and prints its module, or from a folder that was
prepared elsewhere (kit.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from chunkdsl.ir.meshes import World, ranks_of, sizes
from chunkdsl.plan.schedule import Schedule
from chunkdsl.tune.evidence import Result
from chunkdsl.tune.group import GRACE, Compilers, Gone, Group, rank_environments
from chunkdsl.tune.search import Candidates, Job
from chunkdsl.tune.worker import NEEDED

START = 180.0  # seconds in which all ranks must be there
LIMIT = 120.0  # seconds of one setting
COMPILING = 120.0  # seconds in which a batch of modules is compiled; what is left is compiled when it is measured
MOST_COMPILERS = 16


class CannotTune(Exception):
    """`what` stands in the way, `help` says how to go on."""

    def __init__(self, what: str, help: str) -> None:
        super().__init__(what)
        self.what, self.help = what, help


class NoModule(Exception):
    """A setting has none. The message says why."""


class Modules(Protocol):
    """Where modules come from: the path of the one with the op of a job, in its setting, alone; or NoModule."""

    def path(self, job: Job) -> str: ...


def gpus_here() -> int:
    """How many there are. CannotTune where they cannot be used as they shall be."""
    try:
        import torch
    except ImportError:
        raise CannotTune("torch is not installed", "install the extra `run`, or rehearse: `--rehearse`") from None
    if not torch.cuda.is_available():
        raise CannotTune("there is no GPU", "rehearse without one: `--rehearse`")
    missing = [f"{name}={value}" for name, value in NEEDED.items() if os.environ.get(name) != value]
    if missing:
        raise CannotTune(f"{' and '.join(missing)} is not set", "NVLink multicast stays off: set it beforehand")
    return torch.cuda.device_count()


class Bench:
    """The processes of a world of ranks, as long as something is measured. `gpus`: how many there are."""

    def __init__(self, world: World, gpus: int, share_gpu: bool) -> None:
        self.world, self.gpus = world, gpus
        self.shared = gpus < ranks_of(world)
        if self.shared and not share_gpu:
            few = "`--share-gpu` lets ranks share them, which shows that tuning works and measures nothing of use"
            raise CannotTune(f"{ranks_of(world)} ranks have {gpus} GPU{'s' * (gpus > 1)}", few)
        self.group: Group | None = None
        self.compilers: Compilers | None = None
        self.compiled: set[str] = set()
        try:
            names, self.versions = self._start()
        except Gone as why:
            raise CannotTune(f"the ranks did not start: {why}", "see what they say with NCCL_DEBUG=INFO") from None
        self.names = " and ".join(sorted(set(names)))
        self.gpu = f"{self.names}, shared by {ranks_of(world)} ranks" if self.shared else self.names

    def _start(self) -> tuple[list[str], dict[str, str]]:
        self.group = Group(rank_environments(ranks_of(self.world), self.shared))
        said = self.group.ask(None, START)
        return said["names"], said["versions"]

    def ask(self, task: dict) -> dict:
        """The answer of all ranks, or what ended them as a failure."""
        try:
            if self.group is None:
                self._start()
            answer = self.group.ask(task, LIMIT)
        except Gone as why:
            self.group = None
            return {"failed": str(why)}
        if answer.get("broken"):
            self._leave()
        return answer

    def compile(self, tasks: Sequence[dict]) -> None:
        """All that was not compiled before, beside each other. One alone is compiled where it is measured."""
        new = list({t["module"]: t for t in tasks if t["module"] not in self.compiled}.values())
        self.compiled |= {t["module"] for t in new}
        if len(new) < 2:
            return
        if self.compilers is None:
            count = max(1, min(MOST_COMPILERS, (os.cpu_count() or 2) // 2))
            self.compilers = Compilers(count, self.gpus)
        self.compilers.compile(new, COMPILING)

    def _leave(self) -> None:
        if self.group:
            self.group.end(GRACE)
        self.group = None

    def end(self) -> None:
        """Ends all processes."""
        self._leave()
        if self.compilers:
            self.compilers.end()
        self.compilers = None


class Measured:
    """A clock: a bench, and where the modules come from."""

    def __init__(self, bench: Bench, modules: Modules) -> None:
        self.bench, self.modules = bench, modules
        self.gpu, self.versions, self.rehearsal = bench.gpu, bench.versions, bench.shared

    def measure(self, job: Job, ahead: Sequence[Job] = ()) -> list[Result]:
        try:
            task = self._task(job)
        except NoModule as why:
            return self._results(job, {"failed": str(why)})
        if task["module"] not in self.bench.compiled:
            self.bench.compile([task, *self._tasks(ahead[:MOST_COMPILERS])])
        return self._results(job, self.bench.ask(task))

    def compile_all(self, found: Sequence[Candidates]) -> None:
        """Every setting of these candidates that has a module."""
        for space in found:
            beside = [s for i in range(space.steps) for s in space.step(i, space.base) if s is not None]
            self.bench.compile(self._tasks([Job(space, s, space.calls) for s in (space.base, *beside)]))

    def _tasks(self, jobs: Sequence[Job]) -> list[dict]:
        found = []
        for job in jobs:
            try:
                found.append(self._task(job))
            except NoModule:  # which is said when its turn comes
                continue
        return found

    def _task(self, job: Job) -> dict:
        where = {"module": self.modules.path(job), "op": job.space.name, "world": sizes(self.bench.world)}
        return {**where, "calls": [dict(c) for c in job.sizes]}

    def _results(self, job: Job, answer: dict) -> list[Result]:
        results = []
        for i, bound in enumerate(job.sizes):
            made = Result(job.space.name, self.bench.world, bound, job.setting, compared=job.compared)
            if "failed" in answer:
                results.append(replace(made, failed=answer["failed"]))
            else:
                us, library, eager_us, eager_library = map(tuple, answer["found"][i])
                results.append(replace(made, us=us, library=library, eager_us=eager_us, eager_library=eager_library))
        return results


class Benches:
    """The bench that is at work, one at a time, and what goes with it; both kinds of clocks come from here."""

    def __init__(self, gpus: int, share_gpu: bool) -> None:
        self.gpus, self.share_gpu = gpus, share_gpu
        self.bench: Bench | None = None
        self.rendered: Rendered | None = None

    def _of(self, world: World) -> Bench:
        if self.bench is None or self.bench.world != world:
            self.end()
            self.bench = Bench(world, self.gpus, self.share_gpu)
        return self.bench

    def of_spec(self, ready) -> Measured:
        """The clock for a spec that was read (tuning.Prepared)."""
        bench, self.rendered = self._of(ready.world), Rendered(ready.made, ready.world)
        return Measured(bench, self.rendered)

    def of_kit(self, kit) -> Measured:
        """The clock for a kit; all its modules are compiled first."""
        clock = Measured(self._of(kit.world), kit)
        clock.compile_all(kit.found)
        return clock

    def end(self) -> None:
        for part in (self.bench, self.rendered):
            if part:
                part.end()
        self.bench = self.rendered = None


class Rendered:
    """Modules printed as they are asked for, into a folder that goes with it."""

    def __init__(self, made: Schedule, world: World) -> None:
        self.made, self.world = made, world
        self.folder = tempfile.mkdtemp(prefix="chunkdsl-tune-")
        self.paths: dict[tuple, str] = {}

    def path(self, job: Job) -> str:
        key = job.space.name, job.setting
        if key not in self.paths:
            text = module_text(self.made, self.world, job)
            self.paths[key] = os.path.join(self.folder, f"m{len(self.paths)}.py")
            with open(self.paths[key], "w", encoding="utf-8") as file:
                file.write(text)
        return self.paths[key]

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def module_text(made: Schedule, world: World, job: Job) -> str:
    """The module of one op in a setting, alone. NoModule where parts of the setting are not legal together, or where it
    is not proven for these ranks."""
    from chunkdsl.check.worlds import prove_worlds
    from chunkdsl.render.module import render_module
    from chunkdsl.tune.space import schedule_of

    op = schedule_of(job.space, job.setting)
    if op is None:
        raise NoModule("not legal")
    alone = replace(made, ops=(op,), gradients=())
    refuted = [r.message for v in prove_worlds(alone, [world]) for r in v.refutations]
    if refuted:
        raise NoModule(f"not proven: {refuted[0]}")
    return render_module(alone, (world,))
