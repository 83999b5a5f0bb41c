"""Eager calls that nobody looks at go past torch's dispatcher; all others go through it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from chunkdsl.runtime.dispatch import say_changed, unobserved


class Named(torch.Tensor):
    pass


PLAIN, WANTED = torch.zeros(3), torch.zeros(3, requires_grad=True)
SEEN = {
    "a gradient": (nullcontext, WANTED),
    "another class": (torch.no_grad, torch.zeros(3).as_subclass(Named)),
    "a counter of operations": (lambda: FlopCounterMode(display=False), PLAIN),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), PLAIN),
    "a profiler": (lambda: torch.autograd.profiler.profile(use_kineto=False), PLAIN),
    "a default device": (lambda: torch.device("cpu"), PLAIN),
    "shapes alone": (FakeTensorMode, PLAIN),
}


@pytest.mark.parametrize("what", SEEN)
def test_a_call_that_somebody_sees_goes_through_the_dispatcher(what):
    context, tensor = SEEN[what]
    with context():
        assert not unobserved([PLAIN, tensor])


def test_a_call_inside_a_transform_does():
    seen = []
    torch.func.vmap(lambda t: seen.append(unobserved([PLAIN])) or t)(torch.zeros(2, 3))
    assert seen == [False]


def test_a_plain_call_does_not():
    assert unobserved([PLAIN, torch.nn.Parameter(torch.zeros(2), requires_grad=False)])
    with torch.no_grad():
        assert unobserved([WANTED, torch.nn.Parameter(torch.zeros(2))])


def test_sizes_are_told_apart_in_whatever_order_they_are_given(two_ops, ranks, draw, same_bits):
    """Whether it goes through the dispatcher or not, a call is noted under the same sizes, and gives the same bits."""
    parts, _ = draw(20, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        with torch.no_grad():
            direct = m.up(x, w, M=20)
        through = m.up.operator(x, w, m.up.number, 20)
        m.check()
        return len(m.up.tapes), same_bits(direct, through)

    assert ranks(two_ops, body) == [(1, True)] * 2


def test_what_a_direct_call_changes_in_place_is_told_to_autograd():
    """A tensor that was saved for a backward pass, and then updated by an op, must not pass for what was saved."""
    operation = SimpleNamespace(PARAMETERS={"p": None, "res": None}, INOUT=("res",))
    p, res, w = torch.ones(3), torch.ones(3), torch.ones(3, requires_grad=True)
    loss = (w * res).sum()
    say_changed(operation, [p, res])
    assert (p._version, res._version) == (0, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
