"""When the texts of documents are checked: the newest version of each, once, in one thread. Knows no protocol.

Work for a version that is out of date is dropped: what has not begun is never done, what has gives way at its next
item, and neither is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Generic, TypeVar

from chunkdsl.editor.lint import Lint, Stale

Version = TypeVar("Version")
Result = TypeVar("Result")
Watch = Callable[[], None]
IDLE = 0.4  # seconds without a change after which the server prepares for the next one


class Checks(Generic[Version]):
    """`quick` gives what is known at once; where that is not `complete`, `whole` is asked for all, at once. `prepare`
    is called when nothing has changed for a while. All get a function to call between items, which raises `Stale` if
    the version is out of date. `tell` gets what was found in a version while that is the newest of its key, `fail` an
    error that one of them raised."""

    def __init__(
        self, quick: Callable[[Version, Watch], Lint], whole: Callable[[Version, Watch], Lint],
        prepare: Callable[[Version, Watch], object], tell: Callable[[Version, Lint], None],
        fail: Callable[[Exception], None], idle: float = IDLE,
    ) -> None:  # fmt: skip
        self._quick, self._whole, self._prepare, self._idle = quick, whole, prepare, idle
        self._tell, self._fail = tell, fail
        self._running: dict[str, tuple[asyncio.Task, Event]] = {}
        self._pool = ThreadPoolExecutor(1, "lint")

    def start(self, key: str, version: Version) -> None:
        """Check a version, the newest of its key. Called in the event loop."""
        self.stop(key)
        stale = Event()
        self._running[key] = asyncio.get_running_loop().create_task(self._check(version, stale)), stale

    def stop(self, key: str) -> None:
        """Nothing is told any more about versions of a key that were started before."""
        if key in self._running:
            task, stale = self._running.pop(key)
            stale.set()
            task.cancel()

    async def _check(self, version: Version, stale: Event) -> None:
        # Cancelled while it waits, a task takes back work that has not begun; of other work it never sees the result.
        def watch() -> None:
            if stale.is_set():
                raise Stale

        def work(function: Callable[[Version, Watch], Result]) -> asyncio.Future[Result]:
            return asyncio.get_running_loop().run_in_executor(self._pool, function, version, watch)

        try:
            found = await work(self._quick)
            self._tell(version, found)
            if not found.complete:
                self._tell(version, await work(self._whole))
            await asyncio.sleep(self._idle)
            await work(self._prepare)
        except Exception as error:
            self._fail(error)
