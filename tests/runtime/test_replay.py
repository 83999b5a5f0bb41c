"""Calls that are launched again from what the first of their sizes noted: when, with which tensors, and when not."""

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
    drawn = [draw(rows, 2, seed=i)[0] for i, rows in enumerate((ROWS, 7, ROWS, 7, ROWS))]

    def body(m, machine):
        r, good = machine.rank, []
        for name in ("up", "down"):
            op = getattr(m, name)
            seen = counted(op)
            made = [op(*parts[name][r], M=rows) for parts, rows in zip(drawn, (ROWS, 7, ROWS, 7, ROWS), strict=True)]
            assert len(seen) == 2, "one for each size"
            wanted = [op.exact(*p[name][r], M=rows) for p, rows in zip(drawn, (ROWS, 7, ROWS, 7, ROWS), strict=True)]
            m.check()
            good += list(map(same_bits, made, wanted))
        return good

    assert ranks(two_ops, body, seed=1) == [[True] * 10] * 2


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


def test_nothing_of_a_call_is_kept_and_nothing_after_close(two_ops, ranks, draw):
    parts, _ = draw(ROWS, 1)

    def body(m, machine):
        m.up(*parts["up"][0])
        m.check()
        ((_, tape),) = m.up.tapes.values()
        mine = {t.data_ptr() for t in parts["up"][0]}
        held = [v for _, values, _, _ in tape.steps for v in (values or {}).values()]
        tensors = [t for v in held if isinstance(t := getattr(v, "base", v), torch.Tensor)]
        assert tensors and not mine & {t.data_ptr() for t in tensors} and tape.tensors is None
        m.close()
        return m.up.tapes

    assert ranks(two_ops, body, world=1) == [{}]


def test_a_prepared_launch_hands_triton_s_launcher_what_triton_would(two_ops, monkeypatch):
    """Arguments in the kernel's order, those of this call in their places, hooks as they are now."""
    module = two_ops.__init__.__globals__
    machine, kernel = module["Machine"].__new__(module["Machine"]), module["open_call"]
    machine.device, machine.PREPARES, seen = "cuda:0", True, []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77))
    made = SimpleNamespace(
        run=lambda *a: seen.append(a), function="function", packed_metadata="packed",
        launch_metadata=lambda grid, stream, *values: ("said", grid, stream),
    )  # fmt: skip
    args, constants = {"state": None, "word": 5, "active": 1}, {"HOST_WORD": True}
    again = machine.prepared(made, kernel, 3, args, constants, 4, 1)
    again([("state", "here")])
    hooks, note = triton.knobs.runtime.launch_enter_hook, lambda said: None
    hooks.add(note)
    again([("state", "there")])
    hooks.remove(note)
    assert kernel.arg_names == ["state", "word", "active", "HOST_WORD"]
    head, leave = (3, 1, 1, 77, "function", "packed"), triton.knobs.runtime.launch_exit_hook
    assert seen[0] == (*head, None, None, None, "here", 5, 1, True)
    assert seen[1] == (*head, ("said", (3, 1, 1), 77), hooks, leave, "there", 5, 1, True)


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


@pytest.mark.parametrize("stranger", [torch.zeros(4), "a view of it"])
def test_an_unknown_pointer_is_never_played(two_ops, stranger):
    module, mine = two_ops.__init__.__globals__, torch.zeros(16)
    machine = SimpleNamespace(launch=lambda *a: None, prepared=lambda *a: None)
    tape = module["Tape"](machine, [], (mine,))
    tape.launch("kernel", 1, {"a": mine[4:8] if isinstance(stranger, str) else stranger}, {}, 4, 1)
    assert tape.done() is None
