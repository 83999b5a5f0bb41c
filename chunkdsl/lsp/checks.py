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
Watch = Callable[[], None]
IDLE = 0.4  # seconds without a change after which a text is checked whole whose items are all up to date


class Checks(Generic[Version]):
    """`quick` gives what is known at once. `whole` is asked for the rest, if there is any: at once where items are not
    up to date (`complete`), else when nothing has changed for a while. Both get a function to call between items,
    which raises `Stale` if the version is out of date. `tell` gets what was found in a version while that is the
    newest of its key, `fail` an error that one of them raised."""

    def __init__(
        self, quick: Callable[[Version, Watch], Lint], whole: Callable[[Version, Watch], Lint],
        tell: Callable[[Version, Lint], None], fail: Callable[[Exception], None], idle: float = IDLE,
    ) -> None:  # fmt: skip
        self._quick, self._whole, self._tell, self._fail, self._idle = quick, whole, tell, fail, idle
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

        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._pool, self._quick, version, watch)
            self._tell(version, found)
            if not found.whole:
                await asyncio.sleep(self._idle if found.complete else 0)
                self._tell(version, await loop.run_in_executor(self._pool, self._whole, version, watch))
        except Exception as error:
            self._fail(error)
