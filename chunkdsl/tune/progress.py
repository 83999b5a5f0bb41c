"""How far tuning is, for a person: a bar with the time left on a terminal, a line for each setting elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from chunkdsl.tune.evidence import Setting, Sizes
from chunkdsl.tune.search import Job

WIDTH = 24


class Progress:
    """`now`: seconds, of any origin. `limit`: seconds in which all shall be done: no setting is begun for which there
    is less time than one has taken so far."""

    def __init__(self, total: int, done: int, limit: float, now: Callable[[], float], out: TextIO) -> None:
        self.total, self.first, self.limit, self.now, self.out = total, done, limit, now, out
        self.begun = now()
        self.live = out.isatty()

    def may_go_on(self, job: Job, done: int) -> bool:
        """Whether there is time for one more setting, which is then shown as the next one."""
        spent = self.now() - self.begun
        each = spent / (done - self.first) if done > self.first else 0.0
        if spent >= self.limit or spent + each > self.limit:
            return False
        left = time_left(done - self.first, self.total - done, spent, self.limit)
        what = setting_text(job.setting) if job.compared else f"the gate, {sizes_text(job.sizes[0])}"
        text = f"{bar(done, self.total)} {job.space.name}: {what}"
        text += f"   {clock_text(left)} left" if done > self.first else ""
        self.out.write(f"\r\033[2K{text[:118]}" if self.live else f"{text}\n")
        self.out.flush()
        return True

    def end(self, done: int) -> None:
        text = f"{bar(done, self.total)} {clock_text(self.now() - self.begun)}"
        self.out.write(f"\r\033[2K{text}\n" if self.live else f"{text}\n")


def time_left(measured: int, ahead: int, spent: float, limit: float) -> float:
    """Seconds, if each setting takes as long as those so far, and no longer than the time that there is."""
    return min(spent / max(1, measured) * ahead, limit - spent)


def bar(done: int, total: int) -> str:
    full = WIDTH * done // max(1, total)
    return f"[{'#' * full}{'.' * (WIDTH - full)}] {done}/{total}"


def clock_text(seconds: float) -> str:
    """`1:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def sizes_text(sizes: Sizes) -> str:
    """`M = 64, N = 128`."""
    return ", ".join(f"{name} = {value}" for name, value in sizes)


def setting_text(setting: Setting) -> str:
    """As one line; what is not in it is as the rules have it."""
    found: dict[str, list[str]] = {}
    for label, key, text in setting:
        found.setdefault(label, []).append(f"{key} = {text}")
    return "; ".join(f"{label}: {', '.join(pairs)}" for label, pairs in found.items()) or "as the rules have it"
