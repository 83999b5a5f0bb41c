"""Hosts may stand inside torch operators when others run: grad mode, autograd and custom operators stay their own."""

import pytest
import torch

from chunkdsl.sim import World
from chunkdsl.sim.handoff import Handoff

machines = {}


@torch.library.custom_op("chunkdsl_sim_test::total", mutates_args=())
def total(x: torch.Tensor, rank: int) -> torch.Tensor:
    return machines[rank].total(x)


class Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rank):
        ctx.rank = rank
        return total(x, rank)

    @staticmethod
    def backward(ctx, grad):
        return total(grad, ctx.rank), None


def test_autograd_through_custom_operators():
    def host(machine):
        machines[machine.rank] = machine
        x = torch.full((2,), float(machine.rank), requires_grad=True)
        y = Total.apply(x, machine.rank)
        assert y.requires_grad
        if machine.rank == 1:
            with torch.no_grad():
                machine.barrier()
        else:
            machine.barrier()
            assert torch.is_grad_enabled()
        (y * (1 + machine.rank)).sum().backward()
        return y.tolist(), x.grad.tolist()

    for seed in range(4):
        assert World(3, seed=seed).run(host) == [([3.0] * 2, [6.0] * 2)] * 3
        assert torch.is_grad_enabled()


def test_a_fault_unwinds_the_other_hosts():
    ended = []

    def host(machine):
        try:
            if machine.rank == 0:
                raise ValueError("stop")
            machine.barrier()
        finally:
            ended.append(machine.rank)
            machine.barrier()

    for seed in range(4):
        ended.clear()
        with pytest.raises((ValueError, RuntimeError)):
            World(3, seed=seed, policy="last-first").run(host)
        assert 0 in ended and len(ended) == len(set(ended))


def test_a_handoff_alternates_and_hands_over_errors():
    seen = []

    def work():
        seen.append(1)
        hand.pause()
        seen.append(3)
        raise LookupError("end")

    hand = Handoff(work)
    hand.switch()
    seen.append(2)
    with pytest.raises(LookupError):
        hand.switch()
    assert hand.dead and seen == [1, 2, 3]
