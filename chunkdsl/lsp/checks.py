"""When the texts of documents are checked: the newest version of each, once, in one thread. Knows no protocol.

Work for a version that is out of date is dropped: what has not begun is never done, and what has is not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from chunkdsl.editor.lint import Lint

Version = TypeVar("Version")
IDLE = 0.4  # seconds without a change after which a text is checked whole


class Checks(Generic[Version]):
    """`quick` gives what is known at once, `whole` the rest; it is asked `IDLE` seconds later if `quick` gives
    something that is not `whole`. `tell` gets what was found in a version while that is the newest of its key, `fail`
    an error that one of them raised."""

    def __init__(
        self, quick: Callable[[Version], Lint], whole: Callable[[Version], Lint],
        tell: Callable[[Version, Lint], None], fail: Callable[[Exception], None], idle: float = IDLE,
    ) -> None:  # fmt: skip
        self._quick, self._whole, self._tell, self._fail, self._idle = quick, whole, tell, fail, idle
        self._tasks: dict[str, asyncio.Task] = {}
        self._pool = ThreadPoolExecutor(1, "lint")

    def start(self, key: str, version: Version) -> None:
        """Check a version, the newest of its key. Called in the event loop."""
        self.stop(key)
        self._tasks[key] = asyncio.get_running_loop().create_task(self._check(version))

    def stop(self, key: str) -> None:
        """Nothing is told any more about versions of a key that were started before."""
        if task := self._tasks.pop(key, None):
            task.cancel()

    async def _check(self, version: Version) -> None:
        # Cancelled while it waits, a task takes back work that has not begun; of other work it never sees the result.
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._pool, self._quick, version)
            self._tell(version, found)
            if not found.whole:
                await asyncio.sleep(self._idle)
                self._tell(version, await loop.run_in_executor(self._pool, self._whole, version))
        except Exception as error:
            self._fail(error)
