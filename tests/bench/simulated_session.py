"""Cases of tests/bench/multi_gpu.py without a GPU: all ranks of a spec's small twin, simulated in this process.

The same checks as on GPUs, but for graphs. What is measured there runs here once and is compared with the library's
way, which the simulator plays too; it has no time that means anything.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from checks import wrong_calls
from modules import inputs, relative_error, sizes_within
from multi_rows import checked_spec
from other_peers import IMPORTED, find_packages, load_module, reason

from chunkdsl.render.module import class_name, render_module
from chunkdsl.sim.world import World
from chunkdsl.verify.twin import shrink
from chunkdsl.verify.verify import load

CHECKED = (53, 1)
LIMIT = 2e-2  # relative error in norm between ours and the library's, in bf16


class SimulatedSession:
    """`task`: world. Modules are made of their specs, one op each."""

    def __init__(self, task: dict, rank: int) -> None:
        if task.get("peers"):
            find_packages(task["peers"])
        self.folder = tempfile.TemporaryDirectory(prefix="chunkdsl-")

    def do(self, case: dict) -> dict:
        return getattr(self, case["kind"])(**case["about"])

    def close(self) -> None:
        self.folder.cleanup()

    def ranks(self, stem: str, op: str, shape, body) -> list:
        """`body(op, machine)` on every rank of the twin's module, which holds that op alone."""
        world = shape if isinstance(shape, int) else tuple(shape)
        schedule = checked_spec(stem)
        twin = shrink(replace(schedule, ops=tuple(o for o in schedule.ops if o.name == op)), world)
        module = load(render_module(twin, (world,)), Path(self.folder.name), f"{stem}_{op}_{shape}")
        title = class_name(schedule.path)

        def host(machine):
            mesh = None if isinstance(world, int) else world
            instance = getattr(module, title)(machine=machine, mesh=mesh)
            found = body(getattr(instance, op), machine)
            instance.close()
            return found

        return World(world if isinstance(world, int) else world[0] * world[1]).run(host)

    def check(self, stem: str, op: str, shape) -> dict:
        """Bits of every rank, over sizes that shrink and grow."""
        every = self.ranks(stem, op, shape, lambda run, m: wrong_calls(run, sizes_within(run, CHECKED), m, 1))
        bad = [f"rank {rank}: sizes {wrong}" for rank, wrong in enumerate(every) if wrong]
        return {"wrong": "; ".join(bad)[:600], "calls": len(CHECKED), "graph": "not replayed"}

    def measure(self, stem: str, op: str, shape, dim: str, size: int, torchs: bool) -> dict:
        """One call of each, without times."""

        def body(run, machine):
            (dims, *_) = sizes_within(run, CHECKED)
            x = inputs(run, dims, machine.rank, 7)
            ours = run(*x, **dims)
            machine.synchronize()
            return relative_error(run.fallback(*x, **dims), ours)

        apart = max(self.ranks(stem, op, shape, body))
        if not apart < LIMIT:
            raise RuntimeError(f"{stem}.{op} is {apart:.1e} from the library's result")
        return {"untimed": "times of simulated ranks are no evidence", "apart": {"library": apart}}

    def beside(self, stem: str, op: str, shape, dim: str, size: int, peer: str) -> dict:
        """Whether the peer's modules can be imported here."""
        try:
            for module in IMPORTED[peer.split()[0]]:
                load_module(module)
        except Exception as error:  # whatever a package of others raises
            return {"refused": {peer: reason(error)}}
        return {"untimed": "it takes GPUs"}
