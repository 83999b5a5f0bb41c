"""From a call to a module: roles, the reading that fits the kernel, the text of a spec, and the stages that every spec
goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import ModuleType

from chunkdsl import pipeline
from chunkdsl.api.call import Call
from chunkdsl.api.errors import ChunkError, refuse
from chunkdsl.api.reading import Reading, readings
from chunkdsl.api.roles import Hints, Roles, find_roles, several_roles, what_it_does
from chunkdsl.api.schedule import ChunkSchedule
from chunkdsl.api.spec_text import FOLDER, spec_text
from chunkdsl.api.store import Store
from chunkdsl.check.api import call_not_understood, compile_arguments, role_not_clear
from chunkdsl.diagnostics import Report
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.footprint import Question
from chunkdsl.kernels.loops import persistent_step
from chunkdsl.kernels.plausible import misfit
from chunkdsl.kernels.source import KernelSource
from chunkdsl.render.module import class_name
from chunkdsl.source import Source

View = Mapping[str, tuple[int, ...]]  # shapes of a call's tensors as the kernel sees them
FEW = 12  # readings that may speak for one of several gathered arguments
TARGETS = ("triton", "sm_80", "sm_90", "sm_100", "gfx942")


@dataclass(frozen=True)
class Built:
    """A module for calls of one kind. `spec`: the text that it was made of, as a file beside it; `title`: the module's
    class; `most`: rows that a call may have."""

    module: ModuleType
    title: str
    path: Path
    spec: Path
    inputs: tuple[str, ...]
    roles: Roles
    reading: Reading
    call: Call
    seen: View
    most: int

    def serves(self, call: Call, roles: Roles, seen: View) -> bool:
        """The same kernel with the same constants, and sizes that differ in rows alone."""
        if call.like != self.call.like or not self.reading.fits(call, seen) or roles.rows > self.most:
            return False
        ours = (self.roles.gathered, self.roles.results, self.call.plain, self.fixed(self.seen))
        return ours == (roles.gathered, roles.results, call.plain, self.fixed(seen))

    def fixed(self, seen: View) -> dict[str, int]:
        return {name: n for name, n in self.reading.sizes(seen).items() if name != self.reading.rows}


class Compiler:
    """Of one kernel and one schedule. Keeps what it has built and which calls it has seen."""

    def __init__(self, source: KernelSource, schedule: ChunkSchedule, target: str, hints: Hints, store: Store) -> None:
        if target not in TARGETS:
            raise refuse(compile_arguments(f"target_backend = {target!r}", f"it is one of {', '.join(TARGETS)}"))
        self.source, self.schedule, self.target, self.hints, self.store = source, schedule, target, hints, store
        self.built: list[Built] = []
        self.known: dict[tuple, dict[str, set[str]]] = {}
        self.calls: list[tuple[Call, View]] = []

    @cached_property
    def persistent(self) -> bool:
        return persistent_step(self.source) is not None

    def module_for(self, call: Call, rank: int) -> tuple[Built, Roles]:
        """ChunkError where the call, or what it means, is refused."""
        if call.like not in self.known:
            self.known[call.like] = what_it_does(self.source, call, self.schedule.world_size)
        candidates = find_roles(self.source, call, self.schedule, rank, self.hints, self.known[call.like])
        views = [(roles, roles.seen(call, self.schedule.collective_type)) for roles in candidates]
        for roles, seen in views:
            if found := next((b for b in self.built if b.serves(call, roles, seen)), None):
                return found, roles
        if len(views) > 1:  # sizes do not say which argument is gathered: the kernel's arithmetic may
            views = [v for v in views if self.reading([(call, v[1])], v[0], self.most(v[0]), FEW)[0] is not None]
        if len(views) != 1:
            named = [name for roles in [r for r, _ in views] or candidates for name in roles.gathered]
            raise several_roles(call, named, candidates[0].results, self.schedule.world_size)
        ((roles, seen),) = views
        found = self.build(call, roles, seen)
        self.built.append(found)
        self.calls = [*self.calls[-3:], (call, seen)]
        return found, roles

    def most(self, roles: Roles) -> int:
        """Rows that a call of the module may have."""
        return max(roles.rows, self.schedule.max_rows or 0)

    def build(self, call: Call, roles: Roles, seen: View) -> Built:
        most = self.most(roles)
        earlier = [c for c in self.calls if c[0].like == call.like and c != (call, seen)]
        for calls in ([(call, seen), *earlier], [(call, seen)]) if earlier else ([(call, seen)],):
            reading, text, fault = self.reading(calls, roles, most)
            if reading is not None:
                return self.make(call, seen, roles, reading, text, most)
        if fault is not None:
            reason = f"{self.source.path}:{fault.line}: {fault.reason}" if fault.line else fault.reason
            what = f"no reading of this call of `{self.source.function}` fits the kernel; with the likeliest, {reason}"
        else:
            what = f"no sizes of this call give the grid {list(call.grid)}"
        tensor, names = next(iter(call.shapes)), ", ".join(call.integers) or "names of your own"
        mend = f'say shapes in the kernel\'s names ({names}), shapes={{"{tensor}": (...)}}, or write a spec'
        raise refuse(call_not_understood(what, mend), self.source.path)

    def reading(
        self, calls: Sequence, roles: Roles, most: int, tried: int | None = None
    ) -> tuple[Reading | None, str, KernelFault | None]:
        """The first that fits the kernel, and its spec; or why the first does not. `tried`: of how many at most."""
        first: KernelFault | None = None
        refused: ChunkError | None = None  # what a spec may not say
        call, seen = calls[0]
        found = readings(*zip(*calls, strict=True), roles, dict(self.hints.shapes), self.persistent)
        for reading in islice(found, tried):
            sizes = reading.sizes(seen)
            if sizes is None:
                continue
            text = spec_text(self.source, call, self.schedule, roles, reading, sizes, most, self.summed(reading, roles))
            try:
                fault = self.misfit(text, call, roles, sizes | {reading.rows: most})
            except ChunkError as error:
                refused = refused or error
                continue
            if fault is None:
                return reading, text, None
            first = first or fault
        if first is None and refused is not None:
            raise refused
        return None, "", first

    def summed(self, reading: Reading, roles: Roles) -> str:
        """The size that is added over the ranks: the one that the result does not have. "" for a gather."""
        if self.schedule.collective_type == "all_gather":
            return ""
        kept = {d for r in roles.results for d in reading.shapes[r]}
        found = list(dict.fromkeys(d for _, s in reading.dims for d in s if isinstance(d, str) and d not in kept))
        if self.hints.summed:
            found = [d for d in found if d == self.hints.summed]
        if len(found) != 1:
            what = "the size that is summed over the ranks is not clear: one that the result does not have"
            raise refuse(role_not_clear(what, found, 'say it: compile(..., summed="K")'), self.source.path)
        return found[0]

    def misfit(self, text: str, call: Call, roles: Roles, sizes: Mapping[str, int]) -> KernelFault | None:
        """Why the kernel item of a spec is not the kernel's, if a trace at small sizes shows it."""
        beside = self.source.file.parent / self.name  # it is not written: the kernel is read where it lies
        checked = lowered(beside, text.replace(f'"{FOLDER}/', '"'))
        if checked.report.failed:
            self.write(text)
            raise ChunkError(lowered(self.folder(text) / self.name, text).report)
        (kernel,) = checked.program.kernels.values()
        types = {n: t.dtype for n, t in call.tensors}
        typed = [replace(t, dtype=types[t.pointer]) for t in kernel.binding.tensors]
        binding = replace(kernel.binding, tensors=tuple(typed))
        gathered = tuple(t.name for t in binding.tensors if t.pointer in roles.gathered)
        return misfit(Question(kernel.source, binding, gathered, False, sizes))

    # ---- files

    @property
    def name(self) -> str:
        return f"{self.source.function}.chunk"

    def folder(self, text: str) -> Path:
        return self.store.folder(self.source.function, text, self.source.text, self.target)

    def write(self, text: str) -> None:
        folder = self.folder(text)
        try:
            self.store.write(folder / self.name, text)
            self.store.write(folder / FOLDER / self.source.file.name, self.source.text)
        except OSError as error:
            raise refuse(compile_arguments(f"cannot write {folder}: {error.strerror}", "name another folder")) from None

    def make(self, call: Call, seen: View, roles: Roles, reading: Reading, text: str, most: int) -> Built:
        spec = self.folder(text) / self.name
        path = spec.with_suffix(".py")
        self.write(text)
        module = self.store.module(path, lambda: module_text(spec, self.schedule.world_size))
        title = class_name(self.name)
        if self.target != "triton":
            compile_for(module, title, path, self.schedule.world_size, self.target)
        inputs = tuple(n for n in call.shapes if n not in roles.results)
        return Built(module, title, path, spec, inputs, roles, reading, call, seen, most)


def lowered(path: Path, text: str) -> pipeline.Checked:
    checked = pipeline.Checked(Report(Source(str(path), text)))
    pipeline.parse(checked)
    if not checked.report.failed:
        pipeline.lower(checked)
    return checked


def module_text(spec: Path, world: int) -> str:
    """The module of a spec, proven for `world` ranks. ChunkError with what a stage found."""
    checked = pipeline.read_one(str(spec))
    if not checked.report.failed:
        pipeline.prove(checked, (), (world,))
    if checked.report.failed:
        raise ChunkError(checked.report)
    checked.schedule = replace(checked.schedule, path=spec.name)  # not where the cache of this machine is
    pipeline.render(checked)
    return checked.module


def compile_for(module: ModuleType, title: str, path: Path, world: int, target: str) -> None:
    """Compile the module's kernels ahead of time, and lint what came out. ChunkError (CD660) where that fails."""
    from chunkdsl.verify.compile import compile_target

    row = compile_target(module, title, path.read_text(encoding="utf-8"), world, target)
    if not row.passed:
        what = f"the kernels do not compile for {target}, or not well: {row.detail}"
        raise refuse(compile_arguments(what, "other constants, num_warps or num_stages"), path.name)
