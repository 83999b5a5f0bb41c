"""Calls below a closed gate that come again go straight to the library: what they still look at."""

import pytest
import torch

ROWS = 7


@pytest.fixture(scope="module")
def gated(built):
    return built("fuse_from = 8 along M")


def warm(m, x, w):
    """The op once its calls of these sizes go straight, and a log of those that do not."""
    m.up(x, w, M=ROWS)
    seen, real = [], m.up.bind
    m.up.bind = lambda *given, **named: seen.append(1) or real(*given, **named)
    return m.up, seen


def test_arguments_of_known_sizes_are_not_bound_again_whatever_their_strides(gated, ranks, draw, same_bits):
    parts, _ = draw(ROWS, 2)
    other, _ = draw(ROWS, 2, seed=1)

    def body(m, machine):
        x, w = other["up"][machine.rank]
        op, seen = warm(m, *parts["up"][machine.rank])
        odd = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)
        wanted = m.up.fallback(x, w, M=ROWS)
        bound = len(seen)  # of the fallback
        made = [op(x, w, M=ROWS), op(x.t().contiguous().t(), w, M=ROWS), op(odd, torch.nn.Parameter(w, False), M=ROWS)]
        return len(seen) - bound, [same_bits(y, wanted) for y in made]

    assert ranks(gated, body) == [(0, [True] * 3)] * 2


def test_what_is_wrong_with_a_call_is_said_as_before(gated, ranks, draw):
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        op, _ = warm(m, x, w)
        for error, call in (
            (TypeError, lambda: op(x, w, M=ROWS, Q=1)),
            (TypeError, lambda: op(x, M=ROWS)),
            (ValueError, lambda: op(x[:, :16], w, M=ROWS)),
            (ValueError, lambda: op(x.float(), w, M=ROWS)),
            (ValueError, lambda: op(x, w, M=65)),
        ):
            with pytest.raises(error):
                call()
        with pytest.raises(RuntimeError, match="has no gradient"):
            op(x, w.clone().requires_grad_(), M=ROWS).sum().backward()
        m.close()
        with pytest.raises(RuntimeError, match="closed"):
            op(x, w, M=ROWS)
        return True

    assert all(ranks(gated, body))


def test_a_gate_that_opens_and_graphs_that_capture_are_seen(built, ranks, draw):
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        op, _ = warm(m, *parts["up"][machine.rank])
        seen = []
        for captured, gate in ((False, ("M", 8)), (True, ("M", 8)), (False, ("", 0)), (False, ("M", 8))):
            machine.capturing = lambda captured=captured: captured
            op.eager_gate = gate
            op(*parts["up"][machine.rank], M=ROWS)
            machine.synchronize()
            seen.append(int(op.state.local[0]))
        return seen

    assert ranks(built("fuse_from = 2 along M, eager_from = 8 along M"), body) == [[0, 1, 2, 2]] * 2


def test_after_an_error_among_the_library_s_calls_the_instance_is_not_called_again(gated, ranks, draw):
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        op, _ = warm(m, *parts["up"][machine.rank])
        op.plain = lambda dims, *tensors: 1 / 0
        with pytest.raises(ZeroDivisionError):
            op(*parts["up"][machine.rank], M=ROWS)
        with pytest.raises(RuntimeError, match="a call raised ZeroDivisionError"):
            op(*parts["up"][machine.rank], M=ROWS)
        with pytest.raises(RuntimeError, match="a call raised ZeroDivisionError"):
            m.down(*parts["down"][machine.rank], M=ROWS)
        return True

    assert all(ranks(gated, body))
