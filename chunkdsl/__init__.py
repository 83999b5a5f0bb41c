"""chunkdsl: write what overlaps with what, get a proven multi-GPU kernel module."""

__version__ = "0.1.0"
