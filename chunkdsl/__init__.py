"""chunkdsl: write what overlaps with what, get a proven multi-GPU kernel module."""

__version__ = "0.1.0"
__all__ = ["ChunkError", "ChunkSchedule", "__version__", "compile"]

_API = {"ChunkError": "errors", "ChunkSchedule": "schedule", "compile": "compile"}


def __getattr__(name: str):
    """The Python API, imported when it is asked for: the command line starts without it."""
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.api.{_API[name]}"), name)
