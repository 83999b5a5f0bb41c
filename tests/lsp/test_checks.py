"""Stale work is cancelled. Nothing here depends on how long anything takes: a gate holds the first check until all
versions have come in."""

import asyncio
import threading
from types import SimpleNamespace

from chunkdsl.lsp.checks import Checks

PATIENCE = 60  # seconds
PART, ALL = SimpleNamespace(complete=False), SimpleNamespace(complete=True)


def nothing(version, watch):
    pass


class NeverStops(Checks):
    def stop(self, key):
        self._running.pop(key, None)


def keystrokes(make, versions, partly=(), closed=()):
    """What was checked, and what was told, where all versions come in while the first is being checked. A version is
    (key, number); of those in `partly` a part is known first. Documents in `closed` are closed behind the last."""

    async def run():
        begun, told, failed = [], [], []
        running, gate, told_last = threading.Event(), threading.Event(), asyncio.Event()

        def quick(version, watch):
            begun.append(version)
            running.set()
            assert gate.wait(PATIENCE)
            return PART if version in partly else ALL

        def whole(version, watch):
            begun.append((*version, "whole"))
            return ALL

        def tell(version, found):
            told.append((*version, "whole") if found.complete else version)
            if found.complete and version == ("end", 0):
                told_last.set()

        checks = make(quick, whole, nothing, tell, failed.append, idle=0)
        for version in versions:
            checks.start(version[0], version)
            await asyncio.sleep(0)  # its task asks the thread
            await asyncio.to_thread(running.wait, PATIENCE)
        for key in closed:
            checks.stop(key)
        checks.start("end", ("end", 0))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait_for(told_last.wait(), PATIENCE)
        await asyncio.sleep(0)
        assert failed == []
        return begun, told

    return asyncio.run(run())


TYPED = [("a", i) for i in range(30)]


def test_only_the_newest_version_is_checked_and_told():
    begun, told = keystrokes(Checks, TYPED)
    assert begun == [("a", 0), ("a", 29), ("end", 0)], "the first had begun; of the others only the last is looked at"
    assert told == [("a", 29, "whole"), ("end", 0, "whole")]


def test_without_cancelling_every_version_would_be_checked_and_told():
    begun, told = keystrokes(NeverStops, TYPED)
    assert begun == [*TYPED, ("end", 0)] and len(told) == 31


def test_each_document_has_a_newest_version_of_its_own():
    begun, _ = keystrokes(Checks, [("a", 0), ("b", 0), ("a", 1), ("b", 1)])
    assert begun == [("a", 0), ("a", 1), ("b", 1), ("end", 0)]


def test_a_closed_document_is_not_heard_of_again():
    _, told = keystrokes(Checks, [("a", 0), ("b", 0)], closed="ab")
    assert told == [("end", 0, "whole")]


def test_the_rest_of_a_text_is_checked_after_its_part():
    begun, told = keystrokes(Checks, [("a", 0), ("a", 1)], partly=[("a", 0), ("a", 1), ("end", 0)])
    assert [b for b in begun if b[0] == "a"] == [("a", 0), ("a", 1), ("a", 1, "whole")]
    assert [t for t in told if t[0] == "a"] == [("a", 1), ("a", 1, "whole")]


def test_a_failure_is_told_and_the_next_version_is_checked():
    async def run():
        told, failed = asyncio.Queue(), asyncio.Queue()
        checks = Checks(lambda version, watch: 1 // version and ALL, None, nothing,
                        lambda *found: told.put_nowait(found), failed.put_nowait)
        checks.start("a", 0)
        assert isinstance(await failed.get(), ZeroDivisionError)
        checks.start("a", 1)
        assert await told.get() == (1, ALL)

    asyncio.run(run())


def stepping(closed):
    """A check of 1,000 items that a second version interrupts: how far it got. `closed`: the interruption is the end of
    the document instead."""

    async def run():
        steps, running, told = [], threading.Event(), asyncio.Queue()

        def quick(version, watch):
            for step in range(1000 if version == 0 else 1):
                steps.append(step)
                watch()
                if step == 3:
                    running.set()
                    assert interrupted.wait(PATIENCE)
            return ALL

        interrupted = threading.Event()
        checks = Checks(quick, None, nothing, lambda *found: told.put_nowait(found), told.put_nowait)
        checks.start("a", 0)
        await asyncio.to_thread(running.wait, PATIENCE)
        if closed:
            checks.stop("a")
        checks.start("b" if closed else "a", 1)
        interrupted.set()
        assert await told.get() == (1, ALL)
        return steps

    return asyncio.run(run())


def test_a_check_that_has_begun_gives_way():
    assert stepping(closed=False) == stepping(closed=True) == [0, 1, 2, 3, 4, 0]


def told_and_prepared(first, idle):
    """What is told of a text whose first answer is given, and of another behind it; the texts prepared for."""

    async def run():
        told, prepared, ready = asyncio.Queue(), [], threading.Event()

        def prepare(version, watch):
            prepared.append(version)
            ready.set()

        checks = Checks(lambda version, watch: first, lambda version, watch: ALL, prepare,
                        lambda *found: told.put_nowait(found), told.put_nowait, idle=idle)
        checks.start("a", 0)
        seen = [await told.get() for _ in range(1 if first.complete else 2)]
        if idle == 0:
            assert await asyncio.to_thread(ready.wait, PATIENCE)
        checks.start("a", 1)
        seen += [await told.get() for _ in range(1 if first.complete else 2)]
        checks.stop("a")
        assert told.empty()
        return seen, prepared

    return asyncio.run(run())


def test_what_is_not_up_to_date_is_checked_whole_at_once_and_nothing_else():
    assert told_and_prepared(PART, PATIENCE) == ([(0, PART), (0, ALL), (1, PART), (1, ALL)], [])
    assert told_and_prepared(ALL, PATIENCE) == ([(0, ALL), (1, ALL)], [])


def test_the_next_keystroke_is_prepared_for_while_nothing_changes():
    seen, prepared = told_and_prepared(ALL, 0)
    assert seen == [(0, ALL), (1, ALL)] and prepared[0] == 0
