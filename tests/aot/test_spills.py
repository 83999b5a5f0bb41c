"""The edge of the spill lint: what ptxas parks by choice passes, what it spills under pressure does not."""

from types import SimpleNamespace

import pytest

from chunkdsl.aot.lints import LINTS


def found(spills: int, registers: int, ptx: str = "ptx") -> bool:
    return bool(list(LINTS["spills"].run(SimpleNamespace(spills=spills, registers=registers, ptx=ptx))))


@pytest.mark.parametrize(("spills", "registers"), ((0, 255), (4, 48), (16, 127)))
def test_parked_scalars_pass(spills, registers):
    assert not found(spills, registers)


@pytest.mark.parametrize(("spills", "registers"), ((20, 48), (4, 128), (4, 255), (96, 255)))
def test_spills_under_pressure_do_not(spills, registers):
    assert found(spills, registers)


@pytest.mark.parametrize(("spills", "wrong"), ((16, False), (20, True)))
def test_where_warps_are_given_registers_their_average_says_nothing(spills, wrong):
    assert found(spills, 168, ptx="setmaxnreg.dec.sync.aligned.u32 40;") == wrong


def test_on_amd_every_spilled_register_counts():
    assert found(2, 40, ptx="")
