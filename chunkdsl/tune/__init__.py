"""Tuning: candidates that the cost model did not rule out are measured on the GPUs, and the best is kept in a file.

`space` says what may be tried, `search` what comes next, `clock` measures it, `evidence` is the file, `settle` what a
build takes from it. Nothing here runs when a module is called.
"""
