"""Where modules that a program compiles lie: one folder each, named after all that it depends on, with the spec, the
kernel's file and the module. Written whole or not at all; a later process, or another rank, finds it there."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

from chunkdsl import __version__, resources
from chunkdsl.replace import replace_file


class Store:
    """`root`: a folder that is made where it is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str, *parts: str) -> Path:
        digest = hashlib.sha256("\0".join((generator(), *parts)).encode()).hexdigest()[:16]
        return self.root / f"{name}-{digest}"

    @staticmethod
    def write(path: Path, text: str) -> None:
        """OSError if it cannot be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode("utf-8")
        if not path.exists() or path.read_bytes() != data:
            replace_file(str(path), data)

    def module(self, path: Path, make: Callable[[], str]) -> ModuleType:
        """The module at `path`, which is made where it is missing."""
        if not path.exists():
            self.write(path, make())
        return load(path)


def load(path: Path) -> ModuleType:
    """The module of a file, once in a process."""
    name = f"chunkdsl_compiled_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


@cache
def generator() -> str:
    """What stands for the generator in a name: its version, and its files, which change between versions too."""
    found = hashlib.sha256(__version__.encode())
    for folder in (Path(__file__).parents[1], Path(resources.folder("templates")), Path(resources.folder("grammars"))):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".jinja", ".lark"):
                found.update(file.read_bytes())
    return found.hexdigest()
