"""Imports the kernel modules of this folder by path, as they are or with a planted fault."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_loaded = {}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(tmp_path):
    """`module(name, (old, new), ...)`: the module with each text replaced once; the texts must be there."""

    def get(name, *changes):
        source = HERE / f"{name}.py"
        if not changes:
            if name not in _loaded:
                _loaded[name] = load(source)
            return _loaded[name]
        text = source.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}.py"
            text = text.replace(old, new)
        changed = tmp_path / f"{name}_mutant.py"
        changed.write_text(text)
        return load(changed)

    return get
