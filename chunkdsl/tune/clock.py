"""Who says how long a call takes. A clock has

    gpu         its name, as it stands in the file
    rehearsal   whether its times are of no use to a build
    versions    of what the times depend on beside chunkdsl
    measure     a job -> a Result for each of its sizes; it may look at the jobs that come after it, whatever this shows

`Predicted` is the cost model, for rehearsals and tests, which knows calls in CUDA graphs alone; tune/gpu.py measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.trials import LARGEST_PLAY
from chunkdsl.ir.meshes import World
from chunkdsl.plan.schedule import Schedule
from chunkdsl.tune.evidence import Result
from chunkdsl.tune.search import Job
from chunkdsl.tune.space import schedule_of


class Clock(Protocol):
    gpu: str
    rehearsal: bool
    versions: Mapping[str, str]

    def measure(self, job: Job, ahead: Sequence[Job] = ()) -> list[Result]: ...


class Predicted:
    """One round, as the cost model has it."""

    rehearsal = True

    def __init__(self, made: Schedule, world: World, gpu: str) -> None:
        self.made, self.world = made, world
        self.gpu, self.versions = f"the cost model's {gpu}", {}

    def measure(self, job: Job, ahead: Sequence[Job] = ()) -> list[Result]:
        trials, made = job.space.trials, schedule_of(job.space, job.setting)
        found = []
        for sizes in job.sizes:
            dims = {**trials.dims, **dict(sizes)}
            if trials.tasks(made, dims) > LARGEST_PLAY:
                times = {"failed": "the plan is too large to be played out"}
            else:
                library = baseline(made, trials.world, dims | trials.axes, trials.machine)
                times = {"us": (trials.play(made, dims),), "library": (sum(stage.us for stage in library),)}
            found.append(Result(job.space.name, self.world, sizes, job.setting, compared=job.compared, **times))
        return found
