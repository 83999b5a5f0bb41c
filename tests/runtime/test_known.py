"""Calls like the last one go its way unseen: what makes a call another one, and what is looked at all the same."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.runtime import known
from chunkdsl.source import Source
from chunkdsl.verify.verify import load

ROWS, UNSEEN = 6, "unseen"


@pytest.fixture(scope="module")
def closed(built):
    return built("fuse_from = 8 along M")


@pytest.fixture(params=["closed", "two_ops"], ids=["below the gate", "fused"])
def module(request):
    return request.getfixturevalue(request.param)


def of_one_rank(ranks, module, body):
    return ranks(module, lambda m, machine: body(m), world=1)[0]


def told(op, *tensors):
    """The op, whose calls like this one say so in place of a result, if they are not looked at."""
    op(*tensors, M=ROWS)
    mine = type(op.last)(lambda *given: UNSEEN)
    for name in ("fits", "sizes", "graded", "captured"):
        setattr(mine, name, getattr(op.last, name))
    op.__dict__["last"] = mine
    assert op(*tensors, M=ROWS) is UNSEEN
    return op


def outcome(call):
    try:
        return "unseen" if call() is UNSEEN else "looked at"
    except Exception:  # what is said of it is for other tests
        return "looked at"


class Named(torch.Tensor):
    pass


CALLS = {
    "other memory": (lambda x, w: ((x.clone(), w.clone()), {"M": ROWS}), "unseen"),
    "another number of rows": (lambda x, w: ((x[:2], w), {"M": 2}), "looked at"),
    "rows that do not fit": (lambda x, w: ((x[:2], w), {"M": ROWS}), "looked at"),
    "another order in memory": (lambda x, w: ((x.t().contiguous().t(), w), {"M": ROWS}), "looked at"),
    "another dtype": (lambda x, w: ((x, w.float()), {"M": ROWS}), "looked at"),
    "another device": (lambda x, w: ((x, w.to("meta")), {"M": ROWS}), "looked at"),
    "another class": (lambda x, w: ((x, w.as_subclass(Named)), {"M": ROWS}), "looked at"),
    "a gradient": (lambda x, w: ((x, w.clone().requires_grad_()), {"M": ROWS}), "looked at"),
    "a tensor too few": (lambda x, w: ((x,), {"M": ROWS}), "looked at"),
    "a tensor too many": (lambda x, w: ((x, w, w), {"M": ROWS}), "looked at"),
    "no tensor": (lambda x, w: ((x, None), {"M": ROWS}), "looked at"),
    "a size that is not told": (lambda x, w: ((x, w), {}), "looked at"),
    "a size of another type": (lambda x, w: ((x, w), {"M": float(ROWS)}), "looked at"),
    "another size": (lambda x, w: ((x, w), {"M": 5}), "looked at"),
    "an unknown size": (lambda x, w: ((x, w), {"M": ROWS, "Q": 1}), "looked at"),
    "memory for the result": (lambda x, w: ((x, w), {"M": ROWS, "out": x.new_empty(ROWS, 48)}), "looked at"),
}


@pytest.mark.parametrize("what", CALLS)
def test_another_call_is_looked_at(what, module, ranks, draw):
    made, wanted = CALLS[what]
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op = told(m.up, x, w)
        tensors, given = made(x, w)
        return outcome(lambda: op(*tensors, **given))

    assert of_one_rank(ranks, module, body) == wanted


def test_the_next_call_is_compared_with_the_last_one(closed, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]
    turned = x.t().contiguous().t()

    def body(m):
        told(m.up, x, w)
        m.up(turned, w, M=ROWS)
        return outcome(lambda: told(m.up, turned, w)(turned, w, M=ROWS)), m.up.last.fits(x, w)

    assert of_one_rank(ranks, closed, body) == ("unseen", False)


def test_another_number_of_tensors_is_told_of_as_ever(module, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op, said = told(m.up, x, w), []
        for given in ((x,), (x, w, w), ()):
            with pytest.raises(TypeError) as error:
                op(*given, M=ROWS)
            said.append(str(error.value))
        return said

    assert of_one_rank(ranks, module, body) == [f"up takes 2 tensors (x, w), not {n}" for n in (1, 3, 0)]


PLACES = {
    "nothing": (nullcontext, "unseen"),
    "no gradients": (torch.no_grad, "unseen"),
    "inference": (torch.inference_mode, "looked at"),
    "a counter of operations": (lambda: FlopCounterMode(display=False), "looked at"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), "looked at"),
    "a profiler": (lambda: torch.autograd.profiler.profile(use_kineto=False), "looked at"),
    "a default device": (lambda: torch.device("cpu"), "looked at"),
    "shapes alone": (FakeTensorMode, "looked at"),
    "forward mode": (forward_ad.dual_level, "looked at"),
}
TRANSFORMS = {
    "vmap": lambda call: torch.func.vmap(call)(torch.zeros(2, 3)),
    "grad": lambda call: torch.func.grad(call)(torch.zeros(3)),
    "functionalize": lambda call: torch.func.functionalize(call)(torch.zeros(3)),
    "jit.trace": lambda call: torch.jit.trace(call, (torch.zeros(3),), check_trace=False),
}


@pytest.mark.parametrize("where", PLACES)
def test_a_call_that_somebody_sees_is_looked_at(where, module, ranks, draw):
    context, wanted = PLACES[where]
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op = told(m.up, x, w)
        with context():
            return outcome(lambda: op(x, w, M=ROWS))

    assert of_one_rank(ranks, module, body) == wanted


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_a_call_inside_a_transform_is_looked_at(kind, module, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op, seen = told(m.up, x, w), []
        TRANSFORMS[kind](lambda t: seen.append(outcome(lambda: op(x, w, M=ROWS))) or (t * 2).sum())
        return seen

    assert of_one_rank(ranks, module, body) == ["looked at"]


def test_a_compiled_call_is_the_operator(module, ranks, draw):
    """Whatever the last call was: the tracer would see into the op, or refuse it."""
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op, graphs = told(m.up, x, w), []

        def keep(graph, given):
            graphs.append([n.target for n in graph.graph.nodes if n.op == "call_function"])
            return lambda *given: (UNSEEN,)

        torch.compile(lambda: op(x, w, M=ROWS), fullgraph=True, backend=keep)()
        return graphs == [[op.operator]]

    assert of_one_rank(ranks, module, body)


def test_weights_with_gradients_are_looked_at_only_where_these_are_wanted(module, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]
    w = torch.nn.Parameter(w)

    def body(m):
        with torch.no_grad():
            op = told(m.up, x, w)
            first = outcome(lambda: op(x, w, M=ROWS))
        return first, outcome(lambda: op(x, w, M=ROWS))

    assert of_one_rank(ranks, module, body) == ("unseen", "looked at")


SET = {
    "closed": lambda m: m.close(),
    "a failed process group": lambda m: setattr(m.up.machine, "failure", "gone"),
    "a wait that ran out": lambda m: m.up.record.__setitem__(0, 1),
    "a fork": lambda m: setattr(m.up, "closed_because", "forked"),
}


@pytest.mark.parametrize("what", SET)
def test_an_op_that_is_dead_is_not_called(what, module, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        for _ in range(2):
            m.up(x, w, M=ROWS)
        SET[what](m)
        with pytest.raises(RuntimeError, match=r"dead|closed|gone|forked"):
            m.up(x, w, M=ROWS)
        return m.up.last is None or what in ("a failed process group", "a wait that ran out")

    assert of_one_rank(ranks, module, body)


def test_an_error_among_launches_that_are_played_is_the_last_call(two_ops, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        m.up(x, w, M=ROWS)
        m.check()
        assert m.up.last is not None
        m.up.machine.launch = lambda *given, **named: 1 / 0
        with pytest.raises(ZeroDivisionError):
            m.up(x, w, M=ROWS)
        with pytest.raises(RuntimeError, match="a call raised ZeroDivisionError"):
            m.up(x, w, M=ROWS)
        return True

    assert of_one_rank(ranks, two_ops, body)


def test_what_is_set_is_seen_by_the_next_call(module, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        seen = []
        for name, value in (("gate", ("M", 7)), ("replays", False), ("audit", True), ("tapes", {})):
            op = told(m.up, x, w)
            kept = getattr(op, name)
            setattr(op, name, value)
            seen.append(outcome(lambda op=op: op(x, w, M=ROWS)))
            setattr(op, name, kept)
        return seen

    assert of_one_rank(ranks, module, body) == ["looked at"] * 4


def test_whether_a_graph_captures_is_asked_where_it_makes_a_difference(built, ranks, draw):
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        op, asked, now = m.up, [], [False]
        op.machine.capturing = lambda: asked.append(1) or now[0]
        told(op, x, w)
        asked.clear()
        unseen, first = outcome(lambda: op(x, w, M=ROWS)), len(asked)
        now[0] = True  # there the gate is open
        return unseen, first, outcome(lambda: op(x, w, M=ROWS))

    both = built("fuse_from = 2 along M, eager_from = 8 along M")
    assert of_one_rank(ranks, both, body) == ("unseen", 1, "looked at")
    assert of_one_rank(ranks, built("fuse_from = 8 along M"), body) == ("unseen", 0, "unseen")


def test_a_played_call_looks_at_the_places_of_its_tensors(two_ops, ranks, draw, same_bits):
    """And at the interface of kernels, which is the instance's; a graph that was recorded is for its places alone."""
    x, w = draw(ROWS, 1)[0]["up"][0]
    x = torch.cat([x, x])[:ROWS]  # not one that others hold

    def body(m):
        op, log = m.up, []
        run = op.run
        op.run = lambda *given: log.append("anew") or run(*given)
        op(x, w, M=ROWS)
        here = op.buffer("x", x.shape).copy_(x)
        odd = torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape).copy_(x)
        made, anew = [], []
        for given in (x, odd, x, here, x.clone()):
            op(x, w, M=ROWS)
            assert op.last is not None
            log.clear()
            made.append(op(given, w, M=ROWS))
            anew.append(len(log))
        m.warps = 99
        made.append(op(x, w, M=ROWS))
        anew.append(len(log))
        m.check()
        wanted = op.exact(x, w, M=ROWS)
        m.check()
        return anew, [same_bits(y, wanted) for y in made]

    assert of_one_rank(ranks, two_ops, body) == ([0, 1, 0, 1, 0, 1], [True] * 6)


def test_a_recorded_call_is_started_only_for_tensors_that_lie_in_order(two_ops, ranks, draw, same_bits):
    """A matrix and its transpose begin at one address. Nothing that was recorded starts under a profiler."""
    x, w = draw(32, 1)[0]["up"][0]

    def body(m):
        op, machine, log, watched = m.up, m.up.machine, [], [False]
        begin, y = machine.begin_call, torch.empty(32, 48, dtype=torch.bfloat16)
        machine.begin_call = lambda *given, **named: begin(*given, **named) or True
        machine.recorded, machine.watched = lambda play: lambda: log.append("recorded") or play(), lambda: watched[0]
        wanted = [op.exact(t, w, M=32) for t in (x, x.t().contiguous())]
        m.check()
        machine.empty, found = lambda shape, dtype: y, []
        for turned in (False, False, False, False, True, True, False, False):
            log.clear()
            made = op(x.t() if turned else x, w, M=32)
            m.check()
            found.append((len(log), same_bits(made, wanted[turned])))
        watched[0] = True
        log.clear()
        op(x, w, M=32)
        m.check()
        return found, log

    started = [0, 0, 0, 1, 0, 0, 1, 1]  # of calls that come again the third is recorded
    assert of_one_rank(ranks, two_ops, body) == ([(n, True) for n in started], [])


INPLACE = """mesh tp[2] over nvlink
dim M = 0..11
tensor p : f32[M, 96] sum tp
tensor r : f32[M, 96]
op f(p, r inout) -> y {
    r = r + all_reduce(p) with { validity = word, fuse_from = %s }
    y = r * 2
}
"""


@pytest.mark.parametrize("gate", ["always", "never"])
def test_what_is_updated_in_place_is_looked_at_each_time(gate, ranks, tmp_path):
    checked = check_source(Source("places.chunk", INPLACE % gate))
    assert not checked.report.failed, checked.report.diagnostics
    made = load(render_module(checked.schedule, (1, 2)), tmp_path, f"in_place_{gate}").Places

    def body(m, machine):
        p, r = torch.ones(3, 96), torch.zeros(3, 96)
        for _ in range(4):
            y = m.f(p, r)
            m.check()
        assert m.f.last is not None
        for given in (p[:], p):  # as the last call looks, and as it does not
            with pytest.raises(ValueError, match="r, which is updated in place, shares memory with p"):
                m.f(p, given)
        m.check()
        return r._version, r[2, 5].item(), y[2, 5].item()

    version = 4 if gate == "always" else 8  # below the gate torch's own copy counts as well
    assert ranks(made, body, world=1) == [(version, 4.0, 8.0)]


def test_without_torch_s_comparison_every_call_is_looked_at(module, ranks, draw, same_bits, monkeypatch):
    monkeypatch.setattr(torch._C._dynamo, "guards", SimpleNamespace())
    assert known.fit_for([torch.zeros(3)]) is None
    x, w = draw(ROWS, 1)[0]["up"][0]

    def body(m):
        made = [m.up(x, w, M=ROWS) for _ in range(3)]
        m.check()
        return m.up.last, [same_bits(y, made[0]) for y in made]

    assert of_one_rank(ranks, module, body) == (None, [True] * 3)


def test_no_tensor_is_kept():
    """Not by the comparison, in whatever way the tensors came."""
    x = torch.zeros(3)
    before = sys.getrefcount(x)
    known.Known(None).learn([x], {})
    way = known.Known(None)
    way.learn([x], {})
    assert way.fits(x) and sys.getrefcount(x) == before
