"""Kernels of specialised warps as Python, a thread for each partition: words of memory, barriers of shared memory and
what is computed from them are real, tiles are nothing. That is enough to see which notes an instrumented kernel takes
on ranks that wait for each other, without a GPU; it says nothing of a GPU's memory, of bits, or of what compiles.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import torch

sys.path.insert(0, str(Path(__file__).parent))
from gluon_notes import HEAD, NOTES
from modules import warps_in_tiles

from chunkdsl.aot.record import RecordingMachine, blank
from chunkdsl.plan.tile_kernels import warp_tiles
from chunkdsl.runtime.machine import Symmetric

PATIENCE = 20.0  # seconds, of a wait that nobody ends


class Nothing:
    """A tile, a layout, a dtype: whatever is done with it gives nothing again."""

    def _same(self, *args, **named):
        return self

    def __getattr__(self, name):
        return self

    def __iter__(self):
        return iter((self, self))

    __call__ = __getitem__ = __add__ = __radd__ = __mul__ = __rmul__ = __and__ = __lt__ = __rsub__ = _same


class Number(int):
    """An integer that a kernel may cast, to a pointer too."""

    def to(self, kind, **_):
        return Pointer(self, kind[1]) if kind[0] == "*" else self


def _arithmetic(name):
    def method(self, other):
        made = getattr(int, name)(self, other)
        return made if made is NotImplemented else Number(made)

    return method


for _name in "add sub mul floordiv mod and or xor lshift rshift radd rsub rmul lt le gt ge eq ne".split():
    setattr(Number, f"__{_name}__", _arithmetic(f"__{_name}__"))
Number.__hash__ = int.__hash__
nothing = Nothing()


class Pointer:
    def __init__(self, address, size=4):
        self.address, self.size = address, size

    def __add__(self, words):
        return nothing if words is nothing else Pointer(self.address + self.size * words, self.size)

    def to(self, kind):
        return Number(self.address) if kind == "int64" else Pointer(self.address, kind[1]) if kind[0] == "*" else self


class Barrier:
    """An mbarrier: a round is over when all of its arrivals are there, and the bytes that they announced."""

    def __init__(self):
        self.rounds, self.missing, self.owed, self.turn = 0, 1, 0, threading.Condition()

    def init(self, count):
        self.count = self.missing = count

    def arrive(self, count=1, pred=True, owing=0):
        with self.turn:
            self.missing -= count if pred else 0
            self.owed += owing
            if self.owed < 0:
                raise ValueError(f"{-self.owed} bytes come that nobody announced")
            if self.missing == self.owed == 0:
                self.rounds, self.missing = self.rounds + 1, self.count
                self.turn.notify_all()

    def wait(self, parity):
        with self.turn:
            if not self.turn.wait_for(lambda: self.rounds & 1 != parity, PATIENCE):
                raise TimeoutError("a barrier of shared memory")


class Shared:
    """Shared memory: by slot a barrier, and what was stored last."""

    layout = nothing

    def __init__(self, *_):
        self.slots = {i: SimpleNamespace(barrier=Barrier(), value=0) for i in range(8)}

    def index(self, slot):
        held = self.slots[slot]
        there = {name: nothing for name in ("slice", "permute", "_reinterpret", "dtype", "layout")}
        there |= {"store": lambda v: setattr(held, "value", v), "load": lambda _: held.value}
        return SimpleNamespace(b=held.barrier, **there)


class Memory:
    """All words of all ranks by address, and the language as kernels see it."""

    REPLACED: ClassVar = {"left_right": lambda _: (nothing, nothing), "fetch_rows": nothing}  # functions of tiles

    def __init__(self):
        self.words, self.lock, self.here = {}, threading.RLock(), threading.local()

    def load(self, at, mask=None, other=None, volatile=False):
        if at is nothing:
            return nothing
        low = self.words.get(int(at.address), 0)
        return Number(low | self.words.get(at.address + 4, 0) << 32 if at.size == 8 and not low >> 32 else low)

    def store(self, at, value, mask=None):
        self.words[int(at.address)] = int(value)

    def change(self, at, made):
        """An atomic operation: what was there."""
        with self.lock:
            before = self.words.get(int(at.address), 0)
            self.words[int(at.address)] = int(made(before))
        return Number(before)

    def add(self, at, value, sem, scope):
        if value == 0:  # a look, of many
            time.sleep(1e-4)
        return self.change(at, lambda before: before + value)

    def assembly(self, text, _, args, **__):
        special = {"%tid.x": lambda: 32 * self.here.warp, "%globaltimer": time.monotonic_ns}
        return args[0] if args else Number(next((f() for name, f in special.items() if name in text), 0))

    def notes(self, state) -> list[int]:
        return [self.words.get(state + 4 * (HEAD + i), 0) for i in range(4 * self.words.get(state + 64, 0))]

    def language(self) -> dict:
        """What names in the text of kernels mean."""
        many = lambda *bounds, **_: [Number(i) for i in range(*map(int, bounds))]  # noqa: E731
        one = lambda x, *_, **__: x if x is nothing else Number(x)  # noqa: E731
        tl = SimpleNamespace(
            load=self.load, store=self.store, atomic_add=self.add, inline_asm_elementwise=self.assembly,
            atomic_xchg=lambda at, v, mask=True, **_: self.change(at, lambda before: v if mask else before),
            atomic_cas=lambda at, old, new, **_: self.change(at, lambda before: new if before == old else before),
            pointer_type=lambda kind: ("*", {"int32": 4, "int64": 8}.get(kind, 2)), int32="int32", int64="int64",
            cdiv=lambda a, b: Number(-(-a // b)), minimum=lambda a, b: Number(min(a, b)),
            maximum=lambda a, b: Number(max(a, b)), where=lambda c, a, b: a if c else b, cast=one, range=many,
            program_id=lambda _: Number(self.here.program), num_programs=lambda _: Number(self.here.programs),
            static_range=many, max=one, full=lambda _, value, *__: value, zeros=nothing,
            debug_barrier=nothing, allocate_shared_memory=Shared, warp_specialize=self.specialise,
            arange=nothing, uint32=nothing, float32=nothing, bfloat16=nothing, float16=nothing,
            **dict.fromkeys(("BlockedLayout", "SliceLayout", "NVMMADistributedLayout", "NVMMASharedLayout"), nothing),
        )  # fmt: skip
        barriers = SimpleNamespace(
            init=lambda at, count: at.b.init(count), wait=lambda at, parity: at.b.wait(parity),
            arrive=lambda at, **how: at.b.arrive(**how), expect=lambda at, _: at.b.arrive(), MBarrierLayout=nothing,
        )  # fmt: skip
        others = dict.fromkeys(("tma", "fence_async_shared", "warpgroup_mma", "warpgroup_mma_wait"), nothing)
        hopper = SimpleNamespace(mbarrier=barriers, **others)
        gl = SimpleNamespace(**{**vars(tl), "load": nothing})
        return dict(tl=tl, gl=gl, hopper=hopper, load_box=nothing, store_box=nothing, range=many)

    def specialise(self, partitions, warps, registers):
        here, first = self.here, [0, *(4 + sum(warps[:i]) for i in range(len(warps)))]
        placed = zip(first, partitions, strict=True)
        run_all([self.on(here.program, here.programs, warp, *partition) for warp, partition in placed])

    def on(self, program, programs, warp, function, args):
        def body():
            self.here.program, self.here.programs, self.here.warp = program, programs, warp
            function(*args)

        return body

    def kernels(self, text) -> dict:
        """By name the functions of a module's text that run on a GPU, as Python."""
        names = self.language()
        functions = "\n\n\n".join(part for part in text.split("\n\n\n") if re.match(r"@(triton|gluon)\.jit\b", part))
        module = ast.parse(functions)
        for function in module.body:
            function.decorator_list = []
        for node in (node for node in ast.walk(module) if isinstance(node, ast.Assign)):
            if isinstance(node.value, ast.Constant) and type(node.value.value) is int:  # a kernel may cast it
                node.value = ast.Call(ast.Name("Number", ast.Load()), [node.value], [])
        names["Number"] = Number
        exec(compile(ast.fix_missing_locations(module), "kernels", "exec", annotations.compiler_flag), names)
        names |= self.REPLACED
        return names

    def launches(self, kernel, programs, args, constants) -> list:
        """The programs of a launch, to be run with those of other ranks. `args` by name: tensors (of tables of
        addresses all is known), integers; `constants` of the kernel."""
        given = {name: self.taken(value) for name, value in args.items()}
        body = lambda: kernel(**given, **constants)  # noqa: E731
        return [self.on(program, programs, 0, body, ()) for program in range(programs)]

    def taken(self, value):
        if isinstance(value, torch.Tensor):
            if value.dtype == torch.int64:
                self.words.update({value.data_ptr() + 8 * i: a for i, a in enumerate(value.tolist())})
            return Pointer(Number(value.data_ptr()), value.dtype.itemsize)
        return Number(value) if isinstance(value, int) else nothing


def within(function, old, new):
    """A change of a module's text, at one place of one function, to plant a fault there."""

    def change(text):
        head, tail = text.split(f"def {function}(")
        assert old in tail.split("\n\n\n")[0], f"{function} has no {old}"
        return f"{head}def {function}({tail.replace(old, new, 1)}"

    return change


def run_all(bodies) -> None:
    """Side by side. The first exception is raised, whatever the others still wait for."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for t in threads:
        t.start()
    while not errors and any(t.is_alive() for t in threads):
        next(t for t in threads if t.is_alive()).join(0.05)
    if errors:
        raise errors[0]


class Rank(RecordingMachine):
    """A rank whose peers' memory is where `board` has it, and that keeps launches of specialised warps."""

    def __init__(self, board, rank, world, programs):
        super().__init__(rank, world)
        self.board, self.asked, self.kept, self.sms = board, Counter(), [], programs

    def symmetric(self, name, shape, dtype):
        self.asked[name] += 1
        shape = (HEAD + 4 * NOTES,) if name.endswith("_state") else shape
        key = (name, self.asked[name])
        every = self.board.setdefault(key, [blank(shape, dtype) for _ in range(self.world)])
        addresses = tuple(memory.data_ptr() for memory in every)
        return Symmetric(every[self.rank], addresses, torch.tensor(addresses))

    def launch(self, kernel, programs, args, constants, *rest, **named):
        if kernel.__name__.endswith("_warps") and args["active"]:
            self.kept.append((kernel.__name__, programs, args, constants))


def notes_of(cls, text: str, entry: dict, programs: int = 2) -> list[tuple]:
    """Of each rank (kernel, operation, notes as words), of the one kernel of specialised warps in the first call of an
    op, `entry` of planned_words.py. `cls`: the class of the module that was built; `text`: the instrumented module,
    whose kernels run."""
    warps_in_tiles(cls, entry["columns"])
    cls.warps = warp_tiles().triton[0]
    board, memory, bodies, ranks = {}, Memory(), [], []
    kernels = memory.kernels(text)
    for rank in range(entry["world"]):
        machine = Rank(board, rank, entry["world"], programs)
        op = getattr(cls(machine=machine, timeout=PATIENCE, **entry["dims"]), entry["op"])
        tensors = (*op.PARAMETERS.values(), *op.RESULTS.values())
        op.run(True, 1, entry["dims"], *(blank(op.local_shape(shape, entry["dims"]), t) for t, shape in tensors))
        ((kernel, *launch),) = machine.kept
        memory.words[op.state.local.data_ptr()] = 1  # the epoch
        bodies += memory.launches(kernels[kernel], *launch)
        ranks.append((kernel, op))
    run_all(bodies)
    return [(kernel, op, memory.notes(op.state.local.data_ptr())) for kernel, op in ranks]
