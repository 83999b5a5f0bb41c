"""One rank of test_layers_doc.py: `python layer_snippets.py FOLDER RANK`, FOLDER with modules of small f32 sizes.
Executes the snippets of docs/layers.md and compares each with the library's own layer, forward and backward. Prints
JSON: for each snippet "agrees", or why it was not run."""

import json
import os
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "layers.md"
WORLD, TOKENS, H, F_ = 2, 8, 16, 32
GROUPS, GROUP_HEADS, WIDTH = 2, 2, 4


def snippets():
    text = DOCUMENT.read_text(encoding="utf-8")
    found = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    names = {"torch": torch, "scaled_dot_product_attention": F.scaled_dot_product_attention}
    exec(compile(found, str(DOCUMENT), "exec"), names)
    return names


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.5


def part(t, dim, rank):
    return t.chunk(WORLD, dim)[rank].contiguous()


def close(got, wanted, what):
    assert got.shape == wanted.shape and torch.allclose(got, wanted, atol=1e-4), f"{what}: {(got - wanted).abs().max()}"


def same_steps(ours, theirs, x, weights, what):
    """Results, gradients of the input and of the weights: `weights` is [(ours, theirs)]."""
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = ours(a), theirs(b)
    close(y, z, what)
    up = draw(*z.shape, seed=9)
    (got,) = torch.autograd.grad(y, [a], up, retain_graph=True)
    (wanted,) = torch.autograd.grad(z, [b], up, retain_graph=True)
    close(got, wanted, f"{what}, input")
    for mine, their in weights:
        close(*(torch.autograd.grad(*pair, up, retain_graph=True)[0] for pair in ((y, mine), (z, their))), f"{what}, w")


def megatron(names, m, rank):
    """Two layers, [s, b, h] cut along s; and the gated MLP as one op."""
    from megatron.core import parallel_state
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

    torch.cuda.current_device = lambda: torch.device("cpu")  # where megatron keeps the buffer of its gather
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=WORLD)
    config = ModelParallelConfig(
        tensor_model_parallel_size=WORLD, sequence_parallel=True, use_cpu_initialization=True,
        perform_initialization=True, params_dtype=torch.float32,
    )  # fmt: skip

    def fill(weight):
        torch.nn.init.normal_(weight, std=0.3, generator=torch.Generator().manual_seed(4))

    options = dict(config=config, init_method=fill, bias=False, skip_bias_add=True)
    column = ColumnParallelLinear(H, F_, gather_output=False, **options)
    row = RowParallelLinear(F_, H, input_is_parallel=True, **options)
    first = names["ChunkColumnParallel"](column, m.column)
    second = names["ChunkRowParallel"](row, m.row)
    x = draw(TOKENS // 2 // WORLD, 2, H, seed=10 + rank)

    def two(one, other):
        return lambda x: other(torch.nn.functional.gelu(one(x)[0]))[0]

    weights = [(column.weight, column.weight), (row.weight, row.weight)]
    same_steps(two(first, second), two(column, row), x, weights, "megatron")
    gated = ColumnParallelLinear(H, 2 * F_, gather_output=False, **options)

    def theirs(x):
        gate, up = gated(x)[0].chunk(2, dim=-1)
        return row(F.silu(gate) * up)[0]

    def ours(x):
        return m.mlp(x.flatten(0, 1), gated.weight.view(2, -1, H), row.weight).view_as(x)

    same_steps(ours, theirs, x, [(gated.weight, gated.weight), (row.weight, row.weight)], "megatron, gated")


def torchtitan(names, m, rank):
    """The whole feed-forward on whole tokens, [b, s, h] cut along s."""
    from torchtitan.models.common.feed_forward import FeedForward
    from torchtitan.models.common.linear import Linear

    def linear(inner, outer):
        return Linear.Config(in_features=inner, out_features=outer)

    torch.manual_seed(0)
    dense = FeedForward(FeedForward.Config(w1=linear(H, F_), w2=linear(F_, H), w3=linear(H, F_)))
    for seed, p in enumerate(dense.parameters()):
        p.data.copy_(draw(*p.shape, seed=seed))
    ours = names["ChunkFeedForward"](dense, m.mlp)
    whole = draw(2, TOKENS, H, seed=3)
    x = part(whole, 1, rank).requires_grad_()
    y, wanted = ours(x), dense(whole)
    close(y, part(wanted, 1, rank), "torchtitan")
    up = draw(*whole.shape, seed=9)
    y.backward(part(up, 1, rank))
    wanted.backward(up)
    grads = dict(ours.layer.named_parameters())
    close(grads["w13"].grad.full_tensor(), torch.stack([dense.w1.weight.grad, dense.w3.weight.grad]), "torchtitan, w13")
    close(grads["down"].grad.full_tensor(), dense.w2.weight.grad, "torchtitan, down")


def vllm(names, m, rank):
    """Its row-parallel layer, with weights that it has loaded and cut itself, against a product of whole tensors."""
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.linear import RowParallelLinear

    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu"))):
        init_distributed_environment(WORLD, rank, "env://", rank, "gloo")
        initialize_model_parallel(WORLD)
        linear = RowParallelLinear(F_, H, bias=False, params_dtype=torch.float32)
    whole, a = draw(H, F_, seed=1), draw(TOKENS, F_, seed=2)
    linear.weight.weight_loader(linear.weight, whole)
    with torch.inference_mode():
        mine = part(a, 1, rank)
        wanted = linear(mine)[0]
        close(wanted, a @ whole.T, "vllm's own")
        close(names["with_chunk"](linear, m.summed)(mine)[0], wanted, "vllm")


def vllm_shapes(names, m, rank):
    """The same snippet on an object with the attributes of vllm's layer: what can be said without it."""
    whole, a = draw(H, F_, seed=1), draw(TOKENS, F_, seed=2)
    linear = SimpleNamespace(weight=part(whole, 1, rank), return_bias=True)
    with torch.inference_mode():
        close(names["with_chunk"](linear, m.summed).forward(part(a, 1, rank))[0], a @ whole.T, "summed")


def unsummed(names, m, rank):
    """A product that is not summed over the ranks is found out."""
    try:
        vllm_shapes(names, SimpleNamespace(summed=lambda a, w: a @ w.T), rank)
    except AssertionError:
        return
    raise AssertionError("shares of a product pass for the product")


def whole_layer(names, m, rank):
    """Against the same layer on whole tensors, written out; gradients of the input and of one weight of each op."""
    layer = names["ChunkLayer"](m, GROUP_HEADS, WIDTH)
    assert all((scale.full_tensor() == 1).all() for scale in (layer.qkv.g1, layer.mlp.g2))
    x = draw(TOKENS, H, seed=5)
    mine, whole = part(x, 0, rank).requires_grad_(), x.clone().requires_grad_()
    w = {}
    for op in (layer.qkv, layer.out, layer.mlp):
        dense = {k: draw(*v.shape, seed=len(k)) for k, v in op.dense().items()}
        op.load_dense(dense)
        w |= {k: v.requires_grad_() for k, v in dense.items()}
    y = (F.rms_norm(whole, (H,), w["g1"], 1e-5) @ w["wqkv"].T).view(TOKENS, GROUPS, GROUP_HEADS + 2, WIDTH)
    q = y[:, :, :GROUP_HEADS].flatten(1, 2)
    k, v = (y[:, :, GROUP_HEADS + i].repeat_interleave(GROUP_HEADS, dim=1) for i in (0, 1))
    scores = torch.einsum("qhd,khd->hqk", q, k) * WIDTH**-0.5
    scores = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), float("-inf"))
    a = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
    r = whole + a @ w["wo"].T
    n = F.rms_norm(r, (H,), w["g2"], 1e-5)
    wanted = r + (F.silu(n @ w["w13"][0].T) * (n @ w["w13"][1].T)) @ w["w2"].T
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(mine)  # one graph, forward and backward
    close(got, part(wanted, 0, rank), "layer")
    close(layer(mine), got, "layer, not compiled")
    rows = (draw(TOKENS, n, seed=7) for n in layer.out.wo.to_local().shape[1:])
    arguments = *rows, layer.out.wo.to_local().detach(), mine.detach(), m.out.number, TOKENS
    torch.library.opcheck(m.out.operator, arguments, test_utils=("test_schema", "test_faketensor"))
    up = draw(TOKENS, H, seed=6)
    got.backward(part(up, 0, rank))
    wanted.backward(up)
    close(mine.grad, part(whole.grad, 0, rank), "layer, input")
    for name, p in [*layer.qkv.named_parameters(), *layer.out.named_parameters(), *layer.mlp.named_parameters()]:
        close(p.grad.full_tensor(), w[name].grad, f"layer, {name}")


def main():
    folder, rank = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.path.insert(0, folder)
    import layers
    import transformer_layer

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    names, said = snippets(), {}
    m, layer = layers.Layers(), transformer_layer.TransformerLayer()
    for check in (whole_layer, vllm_shapes, unsummed, megatron, torchtitan, vllm):
        try:
            check(names, layer if check is whole_layer else m, rank)
            said[check.__name__] = "agrees"
        except ImportError as why:
            said[check.__name__] = f"not installed: {why}"
    m.close(), layer.close()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
