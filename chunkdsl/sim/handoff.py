"""A function on a stack of its own that runs only while it is told to: what a host function is in the simulation.

It has an OS thread, but there is no concurrency: the simulator waits while the thread runs and the other way round.
A greenlet will not do here. Hosts stand inside torch operators when they switch, and torch and pybind11 keep a stack
for each thread (dispatch keys, grad mode, argument lifetimes) that greenlets would interleave; pybind11 then aborts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

import torch


class Stopped(BaseException):
    """Unwinds a function that will never be told to go on."""


class Handoff:
    """`switch` runs `function` until it calls `pause` or ends; `dead` says that it has ended."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.dead = False
        self._function = function
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._stop = False
        self._error: BaseException | None = None
        self._grad = torch.is_grad_enabled()
        self._thread: threading.Thread | None = None

    def switch(self) -> None:
        """Let the function run until it pauses or ends. Raises what it raises."""
        if self._thread is None:
            run = copy_context().run
            self._thread = threading.Thread(target=lambda: run(self._run), daemon=True)
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self.dead:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self) -> None:
        """Called inside the function: wait until the next `switch`."""
        self._back.release()
        self._go.acquire()
        if self._stop:
            raise Stopped

    def stop(self) -> None:
        """Unwind the function where it pauses; what it raises on its way out is dropped."""
        self._stop = True
        if self._thread is None:
            self.dead = True
        while not self.dead:
            try:
                self.switch()
            except Exception:
                continue

    def _run(self) -> None:
        self._go.acquire()
        try:
            torch._C._set_grad_enabled(self._grad)
            if not self._stop:
                self._function()
        except Stopped:
            pass
        except BaseException as error:
            self._error = error
        self.dead = True
        self._back.release()
