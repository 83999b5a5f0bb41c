"""One process of a group that does cases for tests/bench/multi_gpu.py: takes them in turn and reports (watched.py).
What a case does is said by gpu_session.py, or simulated_session.py where there is no GPU.

    python rank_session.py TASK.json       in the environment RANK, WORLD_SIZE, MASTER_PORT
    python rank_session.py --probe       prints what the machine is

A planted case is one that goes wrong on purpose: it shows that the others are done all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from watched import PIPE, report

FOREVER = 1e6


def do_cases(cases: list[dict], rank: int, world: int, open_session: Callable) -> None:
    """Every case in turn; `open_session()` is called for the first that is not planted, and returns what does them."""
    session = None
    for case in cases:
        if case["kind"] != "planted" and session is None:
            session = open_session()
        if rank == 0:
            report({"begin": case["name"]})
        found = plant(case["about"]["how"], rank == world - 1) if case["kind"] == "planted" else session.do(case)
        if rank == 0:
            report({"end": found})
    if session is not None:
        session.close()


def plant(how: str, last: bool) -> dict:
    """A hang of every rank, with a process more that holds on to the group's pipe, or the end of the last rank."""
    if how == "hang":
        sleep = f"import time; time.sleep({FOREVER})"
        subprocess.Popen([sys.executable, "-c", sleep], pass_fds=[int(os.environ[PIPE])])
    if how == "die" and last:
        os._exit(7)
    if how == "raise" and last:
        raise RuntimeError("planted")
    time.sleep(FOREVER)
    return {}


def main() -> None:
    if sys.argv[1] == "--probe":
        from gpu_session import probe

        return print(json.dumps(probe()))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))

    def open_session():
        if task["device"] == "cpu":
            from simulated_session import SimulatedSession as Session
        else:
            from gpu_session import GpuSession as Session
        return Session(task, rank)

    try:
        do_cases(task["cases"], rank, world, open_session)
    except BaseException as error:
        traceback.print_exc()
        report({"failed": f"{type(error).__name__}: {error}", "rank": rank})
        sys.stderr.flush()
        os._exit(1)  # without waiting for ranks or for a device that may never answer
    os._exit(0)


if __name__ == "__main__":
    main()
