"""A rank that sleeps between its stores, simulated: the twin of the scenes of tests/gpu/check_small.py, from the same
rewriting of the emitted module. Soundness is no matter of time: the sound forms stay right."""

import sys
from pathlib import Path

import pytest
import torch
from emitted import built
from test_exchanges import GUESS, SUM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
from sleepy import load_text, sleeping_reader, sleeping_sender

from chunkdsl.sim.world import World


def wrong_calls(policy, change, folder, **options):
    """How many of 4 results on 2 ranks differ from `exact`, with the module as `change` makes it."""
    _, _, module, title = built(SUM.format(t="bf16", p=policy))
    made = load_text(change(Path(module.__file__).read_text(encoding="utf-8")), folder / "sleepy.py")

    def host(machine):
        f = getattr(made, title)(machine=machine).f
        inputs = [torch.randn(3, 96, generator=torch.Generator().manual_seed(10 * i + machine.rank)) for i in range(4)]
        inputs = [x.bfloat16() for x in inputs]
        fused = [f(x) for x in inputs]
        machine.synchronize()
        f.check()
        exact = [f.exact(x) for x in inputs]
        machine.synchronize()
        return sum(not torch.equal(y, z) for y, z in zip(fused, exact, strict=True))

    return sum(World(2, **options).run(host))


@pytest.mark.parametrize("policy", ["validity = word", "validity = flag", "algorithm = two_shot, buffers = 3"])
def test_sound_forms_stay_right_when_a_rank_sleeps_between_its_stores(policy, tmp_path):
    assert not wrong_calls(policy, lambda text: sleeping_sender(text, 1, 500), tmp_path, seed=1, delay=True)


def test_a_module_without_such_a_place_is_refused():
    with pytest.raises(ValueError, match="no store to a peer"):
        sleeping_sender("import triton", 1)
    with pytest.raises(ValueError, match="nothing speculatively"):
        sleeping_reader("import triton")


def test_a_reader_that_sleeps_between_data_and_flag_is_what_speculation_cannot_bear(tmp_path):
    wrong = [wrong_calls(GUESS, lambda text: sleeping_reader(text, 500), tmp_path, seed=seed) for seed in range(4)]
    assert any(wrong)
