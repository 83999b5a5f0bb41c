"""Kernels of this folder imported by path, and each compiled variant made once a session."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def _load(name):
    spec = importlib.util.spec_from_file_location(f"aot_tests_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def faults():
    return _load("fault_kernels")


@pytest.fixture(scope="session")
def reference():
    return _load("reference_kernel")


@pytest.fixture(scope="session")
def build(faults):
    """build("dot_loop", target, warps=4, stages=3, FORM="plain", ...) -> Compiled, memoised."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from chunkdsl.aot.record import blank, record_use
    from chunkdsl.aot.targets import compile_kernel

    made = {}

    def make(kernel, target="sm_90", warps=4, stages=3, **constants):
        key = (kernel, target, warps, stages, *sorted(constants.items()))
        if key not in made:
            function = getattr(faults, kernel)
            words = {"flag", "flags", "counter", "n", "epoch", "stride", "table"}
            args = {}
            for name in function.arg_names:
                if name in constants or name.isupper():
                    continue
                if name in ("n", "epoch", "stride") or name.endswith("_cap"):
                    args[name] = 48
                elif name == "table":
                    args[name] = blank((8,), torch.int64)
                elif name in words:
                    args[name] = blank((64,), torch.int32)
                else:
                    args[name] = blank((4096, 4096), torch.bfloat16)
            if kernel in ("tma_dot_loop", "publish_tma"):
                for name in ("x", "w") if kernel == "tma_dot_loop" else ("x", "y"):
                    args[name] = TensorDescriptor.from_tensor(args[name], [64, 64])
            made[key] = compile_kernel(record_use(function, args, constants, warps, stages, target), target)
        return made[key]

    return make
