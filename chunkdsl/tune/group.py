"""The processes that measure (tune/worker.py), as the one that decides sees them: a rank for each GPU, of which rank 0
is asked and answers, and others that compile beforehand. Who does not answer in time, or dies, ends the whole group.
Knows nothing of settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from chunkdsl.tune.worker import COMPILE, SHARED

COMMAND = (sys.executable, "-m", "chunkdsl.tune.worker")
LOOK = 0.2  # seconds between looks at processes that say nothing
GRACE = 10.0  # seconds that processes have to leave by themselves
SETTLE = 10.0  # seconds between the end of a process's output and its own
TOLD = 400  # characters of what a process said last


class Gone(Exception):
    """The group has ended. The message says how."""


class Group:
    """`world` processes; the first one is asked. `environments`: of each, beside this process's own."""

    def __init__(self, environments: Sequence[Mapping[str, str]], command: Sequence[str] = COMMAND) -> None:
        self.processes, self.said, self._text = [], [], b""
        try:
            for own in environments:
                said = tempfile.TemporaryFile()
                self.said.append(said)
                first = not self.processes
                self.processes.append(subprocess.Popen(
                    command, env={**os.environ, **own}, stderr=said,
                    stdin=subprocess.PIPE if first else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if first else subprocess.DEVNULL,
                ))  # fmt: skip
        except BaseException:
            self.end(0.0)
            raise

    def ask(self, task: dict | None, seconds: float) -> dict:
        """The answer of the first process; without a task what it says next by itself. Gone (and the group is) if it
        takes longer, or a process ends."""
        try:
            if task is not None:
                self.send(task)
            return json.loads(self._line(time.monotonic() + seconds, seconds))
        except (OSError, ValueError) as why:  # closed, or no answer
            self._give_up(f"rank 0 does not answer: {why}")

    def send(self, task: dict) -> None:
        """OSError where nobody reads."""
        self.processes[0].stdin.write((json.dumps(task) + "\n").encode())
        self.processes[0].stdin.flush()

    def _line(self, until: float, seconds: float) -> bytes:
        out = self.processes[0].stdout
        while b"\n" not in self._text:
            ready, _, _ = select.select([out], [], [], LOOK)
            if ready:
                more = os.read(out.fileno(), 1 << 16)
                if not more:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.processes[0].wait(SETTLE)
                    self._give_up("rank 0 has closed its output")
                self._text += more
            elif any(p.poll() is not None for p in self.processes):
                self._give_up("a rank has ended")
            elif time.monotonic() > until:
                self._give_up(f"no answer within {seconds:.0f} s: a rank hangs")
        line, _, self._text = self._text.partition(b"\n")
        return line

    def _give_up(self, why: str):
        """Gone, with all that is known of who has ended and what it said last."""
        codes = {rank: p.poll() for rank, p in enumerate(self.processes)}
        ended = [f"rank {rank} ended with {code}{self._last_words(rank)}" for rank, code in codes.items() if code]
        self.end(0.0)
        raise Gone("; ".join(ended) or why)

    def _last_words(self, rank: int) -> str:
        said = self.said[rank]
        said.seek(max(0, said.seek(0, os.SEEK_END) - 4 * TOLD))
        lines = [line for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {lines[-1].strip()[:TOLD]}" if lines else ""

    def end(self, grace: float) -> None:
        """Closes what the first process reads, which ends them all, and after `grace` seconds kills those that stay.
        Once is enough."""
        until = time.monotonic() + grace
        for process in self.processes[:1]:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for stream in (*(p.stdout for p in self.processes), *self.said):
            if stream:
                stream.close()
        self.processes, self.said = [], []


def rank_environments(world: int, shared: bool) -> list[dict[str, str]]:
    """Of the ranks of one host, which meet at a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), SHARED: str(int(shared))}
    return [{**every, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


class Compilers:
    """Processes that compile modules beside each other, before anything is timed."""

    def __init__(self, count: int, gpus: int, command: Sequence[str] = COMMAND) -> None:
        self.groups = [Group([{COMPILE: "1", "LOCAL_RANK": str(i % gpus)}], command) for i in range(count)]

    def compile(self, tasks: Sequence[dict], seconds: float) -> int:
        """How many are done within the time; what fails or is left over is compiled when it is measured, and fails
        there."""
        until, left, busy, done = time.monotonic() + seconds, list(tasks), {}, 0
        while (left or busy) and time.monotonic() < until and self.groups:
            for group in [g for g in self.groups if g not in busy]:
                if left:
                    busy[group] = left.pop(0)
                    group.send(busy[group])
            outs = {g.processes[0].stdout: g for g in busy}
            for out in select.select(list(outs), [], [], LOOK)[0]:
                group = outs[out]
                del busy[group]
                try:
                    group.ask(None, 1.0)
                    done += 1
                except Gone:
                    self.groups.remove(group)
        return done

    def end(self) -> None:
        for group in self.groups:
            group.end(0.0)
        self.groups = []
