"""check_calls inside a captured graph: a kernel compares the sizes, as the hosts cannot meet there."""

import pytest
import torch
from emitted import SCATTER, SMALL, built

from chunkdsl.aot.lints import lint
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.aot.targets import compile_kernel
from chunkdsl.sim.world import World

TEXT = SCATTER.format(t="bf16", p=SMALL + "buffers = 2")


def outcomes(sizes) -> list[str]:
    """What check() says on each of three ranks after calls of sizes(rank)."""
    _, _, module, title = built(TEXT)

    def host(machine):
        machine.capturing = lambda: True
        m = getattr(module, title)(machine=machine, check_calls=True)
        for rows in sizes(machine.rank):
            m.f(torch.ones(rows, 32).bfloat16(), torch.ones(48, 32).bfloat16(), torch.ones(48).bfloat16(), M=rows)
        try:
            m.check()
        except RuntimeError as error:
            return str(error)
        return "fine"

    return World(3, seed=1, expire=True).run(host)


def test_ranks_that_agree_go_on():
    assert outcomes(lambda rank: (20, 33, 1, 20)) == ["fine"] * 3


def test_a_rank_with_other_sizes_is_named_by_all_others():
    said = outcomes(lambda rank: (20, 34 if rank == 1 else 33))
    assert "ranks [1] call with other sizes than this rank (call 2)" in said[0]
    assert "ranks [0, 2] call with other sizes than this rank (call 2)" in said[1]
    assert "ranks [1] call with other sizes than this rank (call 2)" in said[2]


@pytest.mark.parametrize("target", ("sm_90", "gfx942"))
def test_the_kernel_compiles_and_passes_the_lints(target):
    _, _, module, title = built(TEXT)
    machine = RecordingMachine(rank=0, world=4, target=target)
    getattr(module, title)(machine=machine, check_calls=True)
    use = next(u for u in machine.uses if u.name == "agree_call")
    compiled = compile_kernel(use, target)
    assert [str(f) for f in lint(compiled, target) if target == "sm_90"] == []
