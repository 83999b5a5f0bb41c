"""Torch in the tests has one thread: they run in as many processes as there are cores (`-n 2`), and threads of several
that wait for each other at the end of a small operation take longer than the operation.

Python's collector looks for cycles less often, and never among the tests themselves: plans are hundreds of thousands of
small objects without any."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
