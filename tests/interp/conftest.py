"""Kernels live in ordinary modules next to the tests; a fixture imports them by path."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def kernels():
    spec = importlib.util.spec_from_file_location("interp_kernels", HERE / "interp_kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
