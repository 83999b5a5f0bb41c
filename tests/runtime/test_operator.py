"""An op as a torch operator, on the fallback path of one CPU rank: what a graph, autocast and a flop counter see."""

import gc

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.filterwarnings("ignore:.*runs its fallback:RuntimeWarning")


@pytest.fixture(scope="module")
def instance(two_ops, tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = two_ops()
    yield made
    made.close()
    del made
    gc.collect()
    dist.destroy_process_group()


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(6, 32).bfloat16(), torch.randn(48, 32).bfloat16()


def test_torchs_own_checks_of_an_operator_pass(instance, inputs):
    for sizes in ((None,), (6,)):
        torch.library.opcheck(instance.up.operator, (*inputs, instance.up.number, *sizes))
    out = torch.empty(6, 48).bfloat16()
    torch.library.opcheck(instance.up.operator_into, (*inputs, out, instance.up.number, None))


def test_a_graph_has_one_node_for_a_call_and_no_breaks(instance, inputs):
    seen = []

    def keep(graph, _):
        seen.append([n.target for n in graph.graph.nodes if n.op == "call_function"])
        return graph.forward

    def layer(x, w):
        return instance.up(torch.relu(x), w) * 2

    got = torch.compile(layer, backend=keep, fullgraph=True)(*inputs)
    assert torch.equal(got, layer(*inputs))
    assert len(seen) == 1 and sum("up" in str(t) for t in seen[0]) == 1


@pytest.mark.parametrize(("dynamic", "sizes"), [(False, (6, 3)), (True, (6, 3, 1, 5))])
def test_a_compiled_call_gives_the_same_bits_for_every_size(instance, inputs, dynamic, sizes):
    x, w = inputs
    compiled = torch.compile(lambda x: instance.up(x, w) + 1, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in sizes:
        assert torch.equal(compiled(x[:rows]), instance.up(x[:rows], w) + 1)


def test_a_compiled_call_takes_sizes_and_out(instance, inputs):
    x, w = inputs

    def into(x, w, out):
        instance.up(x, w, M=6, out=out)
        return out + 1

    out = torch.zeros(6, 48).bfloat16()
    got = torch.compile(into, backend="aot_eager", fullgraph=True)(x, w, out)
    assert torch.equal(out, instance.up(x, w)) and torch.equal(got, out + 1)


def test_wrong_arguments_are_told_before_any_operator_runs(instance, inputs):
    x, w = inputs
    with pytest.raises(TypeError, match="takes 2 tensors"):
        instance.up(x)
    with pytest.raises(TypeError, match="has no size N"):
        instance.up(x, w, N=3)
    with pytest.raises(ValueError, match="has 1 results, out has 2"):
        instance.up(x, w, out=(x, x))
    with pytest.raises(ValueError, match="outside"):
        instance.up(x, w, M=65)


def test_a_gradient_that_the_spec_does_not_state_is_an_error_and_not_silence(instance, inputs):
    x, w = inputs
    y = instance.up(x.requires_grad_(), w)
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="up has no gradient"):
        y.sum().backward()
    with torch.no_grad():
        assert not instance.up(x, w).requires_grad


def test_autocast_casts_to_the_declared_dtypes(instance, inputs):
    x, w = (t.float() for t in inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = instance.up(x, w)
    assert y.dtype == torch.bfloat16 and torch.equal(y, instance.up(*inputs))
    with pytest.raises(ValueError, match=r"x is torch\.float32, declared as torch\.bfloat16"):
        instance.up(x, w)


def test_a_flop_counter_counts_the_products_of_this_rank(instance, inputs):
    with FlopCounterMode(display=False) as counter:
        instance.up(*inputs)
    assert counter.get_total_flops() == 2 * 6 * 48 * 32


def test_functional_call_and_checkpointing_see_an_ordinary_function(instance, inputs):
    x, w = inputs
    calls = []

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros_like(w))
            self.scale = torch.nn.Parameter(torch.ones(48))

        def forward(self, x):
            calls.append(1)
            return instance.up(x, self.weight).detach() * self.scale

    layer = Layer()
    assert torch.equal(torch.func.functional_call(layer, {"weight": w}, x), instance.up(x, w) * layer.scale)
    calls.clear()
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert len(calls) == 2 and layer.scale.grad is not None  # computed again in the backward pass

    def keep(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator is instance.up.operator else CheckpointPolicy.PREFER_RECOMPUTE

    launches = []
    real = instance.up.call
    instance.up.call = lambda *a: launches.append(1) or real(*a)
    try:
        kept = checkpoint(layer, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(keep))
        kept.sum().backward()
    finally:
        del instance.up.call
    assert len(launches) == 1  # a policy may keep what an op has made


def test_deterministic_mode_changes_nothing(instance, inputs):
    before = instance.up(*inputs)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(instance.up(*inputs), before)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_graph_outlives_no_instance(two_ops, instance, inputs):
    other = two_ops()
    number = other.up.number
    assert torch.equal(other.up.operator(*inputs, number, None), instance.up(*inputs))
    other.close()
    del other
    gc.collect()
    with pytest.raises(RuntimeError, match="the instance that this graph was made with is gone"):
        instance.up.operator(*inputs, number, None)


def test_a_module_that_is_loaded_again_has_operators_of_its_own(two_ops, built):
    other = built("buffers = 2")
    first, second = two_ops.OPS["up"].operator, other.OPS["up"].operator
    assert first is not second and str(first) != str(second)
