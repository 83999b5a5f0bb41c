"""Torch in the tests has one thread: they run in as many processes as there are cores (`-n 2`), and threads of several
that wait for each other at the end of a small operation take longer than the operation."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
