"""Calls that are launched again from what the first of their sizes noted: when, with which tensors, and when not."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS = 20


def counted(op):
    """Notes each time that the op's own launches run."""
    seen, real = [], op.run
    op.run = lambda *arguments: seen.append(1) or real(*arguments)
    return seen


def test_a_call_of_known_sizes_is_played_with_its_own_tensors(two_ops, ranks, draw, same_bits):
    drawn = [draw(rows, 2, seed=i)[0] for i, rows in enumerate((ROWS, 7, ROWS, 7))]

    def body(m, machine):
        r, good = machine.rank, []
        for name in ("up", "down"):
            op = getattr(m, name)
            seen = counted(op)
            made = [op(*parts[name][r], M=rows) for parts, rows in zip(drawn, (ROWS, 7, ROWS, 7), strict=True)]
            assert len(seen) == 2, "one for each size"
            wanted = [op.exact(*p[name][r], M=rows) for p, rows in zip(drawn, (ROWS, 7, ROWS, 7), strict=True)]
            m.check()
            good += list(map(same_bits, made, wanted))
        return good

    assert ranks(two_ops, body, seed=1) == [[True] * 8] * 2


def test_what_cannot_be_told_apart_is_launched_anew(two_ops, ranks, draw, same_bits):
    """Inputs in the op's own buffer, misaligned ones, and two that are one tensor."""
    parts, _ = draw(ROWS, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        m.up(x, w, M=ROWS)
        seen = counted(m.up)
        odd = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)
        here = m.up.buffer("x", x.shape).copy_(x)
        made = [m.up(odd, w, M=ROWS), m.up(here, w, M=ROWS)]
        assert len(seen) == 2
        made.append(m.up(x, w, M=ROWS))
        assert len(seen) == 2
        square = torch.eye(24, 32).bfloat16()
        both = m.up(square, square)  # its launches cannot say which of the two an address was
        again = m.up(square, w)
        assert len(seen) == 4
        wanted = [m.up.exact(x, w, M=ROWS)] * 3 + [m.up.exact(square, square), m.up.exact(square, w)]
        m.check()
        return list(map(same_bits, [*made, both, again], wanted))

    assert ranks(two_ops, body) == [[True] * 5] * 2


@pytest.mark.parametrize("past_triton", [False, True])
def test_nothing_of_a_call_is_kept(two_ops, past_triton):
    module, mine = two_ops.__init__.__globals__, [torch.zeros(16, 16), torch.zeros(2, 16), torch.zeros(8)]
    start = (lambda changed, shared: None) if past_triton else None
    machine = SimpleNamespace(
        launch=lambda *a: None, prepared=lambda *a: start, copy=lambda *a: None, begin_play=lambda: None
    )
    tape = module["Tape"](machine, [], mine)
    descriptor = TensorDescriptor(mine[0], [16, 16], [16, 1], [8, 8])
    tape.launch("kernel", 1, {"a": descriptor, "b": mine[1][1], "c": mine[2], "n": 3}, {}, 4, 1)
    tape.copy(mine[0].data_ptr(), mine[2].data_ptr(), 32, "main")
    gone, tape = [weakref.ref(t) for t in mine], tape.done()
    mine.clear()
    del descriptor
    gc.collect()
    assert tape is not None and [ref() for ref in gone] == [None] * 3


def test_nothing_is_played_after_close(two_ops, ranks, draw):
    parts, _ = draw(ROWS, 1)

    def body(m, machine):
        m.up(*parts["up"][0])
        m.check()
        assert len(m.up.tapes) == 1
        m.close()
        return m.up.tapes

    assert ranks(two_ops, body, world=1) == [{}]


def test_a_prepared_launch_hands_triton_s_launcher_what_triton_would(two_ops, monkeypatch):
    """Arguments in the kernel's order, those of this call in their places, hooks as they are now."""
    module = two_ops.__init__.__globals__
    machine, kernel = module["Machine"].__new__(module["Machine"]), module["open_call"]
    machine.device, seen = "cuda:0", []
    machine.current = lambda: 77
    made = SimpleNamespace(
        run=lambda *a: seen.append(a), function="function", packed_metadata="packed",
        launch_metadata=lambda grid, stream, *values: ("said", grid, stream),
    )  # fmt: skip
    args, constants = {"state": None, "word": 5, "active": 1}, {"HOST_WORD": True, "SLOTS": 1, "EARLY": False}
    again = machine.prepared(made, kernel, 3, args, constants, ("state",))
    again(["here"], machine.begin_play())
    hooks, note = triton.knobs.runtime.launch_enter_hook, lambda said: None
    hooks.add(note)
    again(["there"], machine.begin_play())
    hooks.remove(note)
    assert kernel.arg_names == ["state", "word", "active", "HOST_WORD", "SLOTS", "EARLY"]
    head, leave = (3, 1, 1, 77, "function", "packed"), triton.knobs.runtime.launch_exit_hook
    assert seen[0] == (*head, None, None, None, "here", 5, 1, True, 1, False)
    assert seen[1] == (*head, ("said", (3, 1, 1), 77), hooks, leave, "there", 5, 1, True, 1, False)
    machine.PREPARES = False
    assert machine.prepared(made, kernel, 3, args, constants, ("state",)) is None


def test_a_descriptor_is_the_noted_one_on_another_tensor(two_ops):
    module = two_ops.__init__.__globals__
    first, second = torch.zeros(16, 16), torch.ones(16, 16)
    seen = []
    machine = SimpleNamespace(
        launch=lambda kernel, programs, args, *rest: seen.append(args), prepared=lambda *a: None
    )
    tape = module["Tape"](machine, [], (first,))
    tape.launch("kernel", 1, {"a": TensorDescriptor(first, [16, 16], [16, 1], [8, 8]), "n": 3}, {}, 4, 1)
    tape.done().play((second,))
    assert seen[0]["a"].base is first and seen[1]["a"].base is second
    assert seen[1]["a"].block_shape == [8, 8] and seen[1]["n"] == 3


def test_a_part_of_a_tensor_is_that_part_of_the_next_one(two_ops):
    """A matrix out of a stack, as `w[1]` is; the tensor may begin anywhere in its storage."""
    module, seen = two_ops.__init__.__globals__, []
    machine = SimpleNamespace(
        launch=lambda kernel, programs, args, *rest: seen.append(args["a"]), prepared=lambda *a: None
    )
    first, second = torch.arange(24.0).view(2, 3, 4), torch.arange(100.0)[10:34].view(2, 3, 4)
    tape = module["Tape"](machine, [], (first,))
    tape.launch("kernel", 1, {"a": first[1]}, {}, 4, 1)
    tape.done().play((second,))
    assert torch.equal(seen[1], second[1]) and seen[1].data_ptr() == second[1].data_ptr()


@pytest.mark.parametrize("stranger", [torch.zeros(4), "columns of it"])
def test_an_unknown_pointer_is_never_played(two_ops, stranger):
    module, mine = two_ops.__init__.__globals__, torch.zeros(4, 4)
    machine = SimpleNamespace(launch=lambda *a: None, prepared=lambda *a: None)
    tape = module["Tape"](machine, [], (mine,))
    tape.launch("kernel", 1, {"a": mine[:, 1] if isinstance(stranger, str) else stranger}, {}, 4, 1)
    assert tape.done() is None
