"""How many programs of a launch around a user's kernel a multiprocessor gets, and the registers that this leaves."""

from types import SimpleNamespace

import pytest
import torch

from chunkdsl.runtime.machine import Machine

H200 = SimpleNamespace(
    max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=233472
)


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "fit"),
    [
        (109, 98304, 8, {"PER_SM": 2, "maxnreg": 128}),  # the tutorial's matrix product
        (130, 98304, 8, {"PER_SM": 1, "maxnreg": 255}),
        (109, 131072, 8, {"PER_SM": 1, "maxnreg": 255}),
        (30, 0, 4, {"PER_SM": 5, "maxnreg": 96}),  # one row for each program
    ],
)
def test_a_launch_is_as_resident_as_the_kernel_inside(monkeypatch, registers, shared, warps, fit):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: H200)
    machine = object.__new__(Machine)
    machine.target, machine.device, kernel = "sm_90", "cuda", object()
    machine._made = {kernel: (SimpleNamespace(n_regs=registers, metadata=SimpleNamespace(shared=shared)), warps)}
    assert machine.fit(kernel) == fit
    for wide, bound in ((None, False), (fit["maxnreg"], False), (fit["maxnreg"] + 1, True)):
        if wide:  # registers of a launch around it, once it has been made
            machine._made["around"] = SimpleNamespace(n_regs=wide), warps
        assert ("maxnreg" in machine.fit(kernel, "around")) == bound
    assert machine.fit(object()) == {"PER_SM": 1}  # not launched before
    machine.target = "gfx942"
    assert machine.fit(kernel) == {"PER_SM": 1}
