"""The decoder of examples/train_tiny_llm.py trained in four ways from the same weights: dense in plain torch, and on
two simulated ranks fused, unfused with the same kernels (`exact`), and by the fallback."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = {"H": 32, "Q": 96, "A": 32, "F": 32}  # of the spec, and of the program:
SMALL = {"WIDTH": 32, "HEADS": 2, "LENGTH": 7, "BATCH": 1, "LAYERS": 1}
TOKENS, STEPS = 7, 2
REPLICATED = ("embedding", "position", "norm", "g1", "g2")  # gradients are each rank's tokens' share


@pytest.fixture(scope="module")
def program():
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location("tiny_program", EXAMPLES / "train_tiny_llm.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(EXAMPLES))
    vars(made).update(SMALL)
    return made


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    text = (EXAMPLES / "tiny_llm.chunk").read_text(encoding="utf-8")
    for name, size in SIZES.items():
        text, count = re.subn(rf"^dim {name} = \d+", f"dim {name} = {size}", text, flags=re.MULTILINE)
        assert count == 1
    checked = check_source(Source("tiny_llm.chunk", text))
    assert not checked.report.diagnostics, checked.report.diagnostics
    return load(render_module(checked.schedule, (1, 2)), tmp_path_factory.mktemp("module"), "tiny").TinyLlm


class Exact(torch.autograd.Function):
    """An op and its gradient, both by `exact`."""

    @staticmethod
    def forward(context, op, *tensors):
        forward = op.partner(op.FORWARD)
        made = forward.exact(*tensors, T=TOKENS)
        made = made if isinstance(made, tuple) else (made,)
        context.backward_op, wanted = op.partner(forward.BACKWARD[0]), forward.BACKWARD[1]
        places = {"input": tensors, "output": made, "gradient": (None,) * len(made)}
        context.kept = [places[kind][i] for kind, i in wanted]
        return made[0]

    @staticmethod
    def backward(context, gradient):
        given = [gradient.contiguous() if t is None else t.detach() for t in context.kept]
        return (None, *context.backward_op.exact(*given, T=TOKENS))


WAYS = {
    "fused": lambda op, *tensors: op(*tensors, T=TOKENS),
    "exact": Exact.apply,
    "fallback": lambda op, *tensors: op.fallback(*tensors, T=TOKENS),
}


class Way(torch.nn.Module):
    """A layer whose op is called in one of these ways."""

    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, *inputs):
        others = iter(inputs)
        op, weights = self.layer.operation, self.layer.weights
        return self.call(op, *(getattr(self.layer, n) if n in weights else next(others) for n in op.PARAMETERS))


def curve(model, total, part):
    """Losses of some steps, and the parameters at the end. `total`: the sum over ranks; `part`: this rank's tokens."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        tokens, targets = torch.randint(128, (2, TOKENS), generator=draw)
        logits = model(part(tokens), part(torch.arange(TOKENS)))
        loss = F.cross_entropy(logits, part(targets), reduction="sum") / TOKENS
        loss.backward()
        for name, p in model.named_parameters():
            if name.split(".")[-1] in REPLICATED:
                p.grad = total(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total(loss.detach()))
    return [*losses, *(p.detach().clone() for p in model.parameters())]


def test_dense_fallback_and_fused_curves_agree_and_fused_has_the_bits_of_exact(program, module):
    def alone(machine):
        _, dense = program.models(module(machine=machine, T=TOKENS), "cpu")
        return curve(dense, lambda t: t, lambda t: t)

    def ranks(machine):
        ended = machine.end_call
        machine.end_call = lambda: (ended(), machine.synchronize())  # torch's own part of the model has no stream here
        m, found = module(machine=machine, T=TOKENS), {}
        for way, call in WAYS.items():
            model, _ = program.models(m, "cpu")
            for layer in model.layers:
                layer.qkv, layer.out, layer.mlp = (Way(x, call) for x in (layer.qkv, layer.out, layer.mlp))
            found[way] = curve(model, machine.total, lambda t: cut(t, 0, 2, machine.rank))
            m.check()
        m.close()
        return found

    (dense,) = World(1).run(alone)
    for found in World(2, seed=0).run(ranks):
        assert len(found["fused"]) > STEPS + 8
        assert all(torch.equal(a, b) for a, b in zip(found["fused"], found["exact"], strict=True))
        for way in ("fused", "fallback"):
            for loss, wanted in zip(found[way][:STEPS], dense[:STEPS], strict=True):
                torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=0)
        assert found["fused"][1] != found["fused"][0]

