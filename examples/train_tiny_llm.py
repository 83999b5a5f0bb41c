"""Train a small decoder on text that comes with Python, tensor-parallel, with ops and gradients of a generated module.

    torchrun --nproc-per-node 2 examples/train_tiny_llm.py --steps 50

Tokens are sharded over the ranks between the layers, heads and hidden units inside them (examples/tiny_llm.chunk). Each
step is also taken by the same model in plain torch, on whole tensors, and the two losses are printed side by side; on
GPUs the ops run fused, without them the module runs its fallback on gloo. Embedding and the last norm are replicated:
their gradients are each rank's tokens' share, added up by an all-reduce. So are those of the norms inside the ops,
Partial by their type; the layers add them up.

--save FOLDER writes a checkpoint at the end, FOLDER/step-50, and --every STEPS some on the way: weights, state of the
optimizer, the step, and how far the drawing of data has come. --resume FOLDER/step-50 goes on from there as if the run
had not ended, on any number of ranks that divides 4 heads. --csv FILE, --tensorboard FOLDER and --plot FILE keep the
losses.

Exit codes: 0 the losses agree, 1 they do not, 2 it could not run.
"""

import argparse
import csv
import importlib.util
import pydoc_data.topics
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F
from ranks import CannotRun, add_module_arguments, built_module, load, on_ranks, shard
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

WIDTH, HEADS, LENGTH, BATCH, LAYERS, SYMBOLS = 64, 4, 64, 4, 2, 128
EPS = 1e-5  # of the norms, as the spec has it
TOLERANCE = 1e-3  # of the loss; in f32 only the order of additions differs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_module_arguments(parser, "examples/tiny_llm.chunk")
    parser.add_argument("--steps", default=50, type=int)
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--every", type=int, metavar="STEPS", help="with --save: also after each so many steps")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    parser.add_argument("--tensorboard", type=Path, metavar="FOLDER", help="needs the package tensorboard")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the two curves as an SVG image")
    warnings.filterwarnings("ignore", "(?s).*runs its fallback", RuntimeWarning)  # it is printed at the end
    return on_ranks(train, parser.parse_args())


# ---- the model, once: `ops` are those of the module, or plain torch on whole tensors


class Layer(nn.Module):
    def __init__(self, qkv, out, mlp, world):
        super().__init__()
        self.qkv, self.out, self.mlp, self.world = qkv, out, mlp, world

    def forward(self, x):
        return self.mlp(self.out(self.attention(self.qkv(x)), x))

    def attention(self, y):
        """Causal attention of this rank's heads over all tokens: [T, 3 x heads x width] -> [T, heads x width]."""
        heads = HEADS // self.world
        q, k, v = y.view(BATCH, LENGTH, heads, 3, WIDTH // HEADS).permute(3, 0, 2, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return a.transpose(1, 2).reshape(BATCH * LENGTH, -1)


class Decoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.embedding = nn.Parameter(torch.randn(SYMBOLS, WIDTH, generator=g) * 0.1)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH, generator=g) * 0.1)
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.layers = nn.ModuleList(layers)

    def forward(self, tokens, places):
        x = self.embedding[tokens] + self.position[places]
        for layer in self.layers:
            x = layer(x)
        return F.rms_norm(x, (WIDTH,), self.norm, EPS) @ self.embedding.T


class Dense(nn.Module):
    """What an op computes, on whole tensors; takes the weights of an OpLayer."""

    def __init__(self, weights, compute):
        super().__init__()
        self.weights = nn.ParameterDict({k: nn.Parameter(v.clone()) for k, v in weights.items()})
        self.compute = compute

    def forward(self, *inputs):
        return self.compute(self.weights, *inputs)


def dense_qkv(w, x):
    return F.rms_norm(x, (WIDTH,), w["g1"] + 1, EPS) @ w["wqkv"].T


def dense_out(w, a, x):
    return a @ w["wo"].T + x


def dense_mlp(w, x):
    return F.gelu(F.rms_norm(x, (WIDTH,), w["g2"] + 1, EPS) @ w["w1"].T + w["b1"]) @ w["w2"].T + x


def models(m, device):
    """The tensor-parallel decoder and the dense one, with equal weights."""
    parallel, dense = [], []
    for i in range(LAYERS):
        ops = [
            m.qkv.as_module(["g1", "wqkv"], seed=10 * i + 2, std=0.1),
            m.out.as_module(["wo"], seed=10 * i + 3, std=0.1),
            m.mlp.as_module(["g2", "w1", "b1", "w2"], seed=10 * i + 4, std=0.1),
        ]
        parallel.append(Layer(*ops, m.mlp.world))
        computed = zip(ops, (dense_qkv, dense_out, dense_mlp), strict=True)
        dense.append(Layer(*(Dense(op.dense(), compute) for op, compute in computed), 1))
    return Decoder(parallel).to(device), Decoder(dense).to(device)


def same_state(models, optimizers):
    """Make weights and optimizer of the dense model those of the parallel one. Collective."""
    (parallel, dense), (ours, theirs) = models, optimizers

    def whole(t):
        return t.full_tensor() if hasattr(t, "full_tensor") else t

    twins = {name.replace(".weights.", "."): p for name, p in dense.named_parameters()}
    with torch.no_grad():
        for name, p in parallel.named_parameters():
            twins[name].copy_(whole(p))
            theirs.state[twins[name]] = {kind: whole(value).clone() for kind, value in ours.state[p].items()}


# ---- training


class Batches:
    """Pieces of the text, drawn at random, the same on every rank."""

    def __init__(self, text, device):
        self.text, self.device, self.draws = text, device, torch.Generator().manual_seed(0)

    def next(self):
        """(tokens, targets), each [BATCH x LENGTH]."""
        starts = torch.randint(len(self.text) - LENGTH - 1, (BATCH,), generator=self.draws)
        rows = torch.stack([self.text[s : s + LENGTH + 1] for s in starts]).to(self.device)
        return rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)


class Run:
    """What a run goes on from, as torch.distributed.checkpoint takes it: saved by some ranks, read by other numbers."""

    def __init__(self, model, optimizer, batches):
        self.model, self.optimizer, self.batches, self.step = model, optimizer, batches, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        draws = self.batches.draws.get_state()
        return {"model": model, "optimizer": optimizer, "step": self.step, "draws": draws}

    def load_state_dict(self, state):
        found = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, self.optimizer, **found)
        self.step = state["step"]
        self.batches.draws.set_state(state["draws"])


def train(args, rank, device):
    if args.resume is not None and not (args.resume / ".metadata").exists():
        raise CannotRun(f"{args.resume} is no checkpoint; --save FOLDER writes FOLDER/step-N")
    world, total = dist.get_world_size(), BATCH * LENGTH
    if args.tensorboard is not None and importlib.util.find_spec("tensorboard") is None:
        raise CannotRun("--tensorboard needs the package tensorboard (pip install tensorboard)")
    if HEADS % world:
        raise CannotRun(f"{HEADS} heads are not divided by {world} ranks")
    path = built_module(args, rank, [n for n in range(1, HEADS + 1) if HEADS % n == 0])
    try:
        m = load(path).TinyLlm(dist.group.WORLD, device=device, T=total)
    except ValueError as why:
        raise CannotRun(str(why)) from None
    corpus = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    text = torch.frombuffer(bytearray(corpus), dtype=torch.uint8).long()
    parallel, dense = both = models(m, device)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False) for model in both]
    run = Run(parallel, optimizers[0], Batches(text, device))
    if args.resume is not None:
        checkpoint.load({"run": run}, checkpoint_id=args.resume)
        same_state(both, optimizers)
    places = torch.arange(LENGTH, device=device).repeat(BATCH)
    rows, worst, first = [], 0.0, run.step
    for step in range(first, first + args.steps):
        tokens, targets = run.batches.next()
        mine, wanted, where = (shard(t, ((total, True),), world, rank) for t in (tokens, targets, places))
        share = F.cross_entropy(parallel(mine, where), wanted, reduction="sum") / total
        share.backward()
        add_up(parallel)
        loss = share.detach()
        dist.all_reduce(loss)
        reference = F.cross_entropy(dense(tokens, places), targets)
        reference.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        run.step = step + 1
        rows.append((step, loss.item(), reference.item()))
        worst = max(worst, abs(rows[-1][1] - rows[-1][2]) / rows[-1][2])
        if rank == 0:
            progress(run.step - first, args.steps, rows[-1])
        due = run.step == first + args.steps or (args.every and run.step % args.every == 0)
        if args.save is not None and due:
            checkpoint.save({"run": run}, checkpoint_id=args.save / f"step-{run.step}")
    m.check()
    why = m.mlp.unfused({"T": total})
    m.close()
    if rank == 0:
        keep(args, rows)
        print(f"\nranks    {world} on {device.type}, {total} tokens a step, {len(text):,} characters of text")
        print(f"path     {'fused' if why is None else f'fallback, because {why}'}")
        print(f"loss     {rows[0][1]:.4f} -> {rows[-1][1]:.4f}; dense {rows[0][2]:.4f} -> {rows[-1][2]:.4f}")
        print(f"losses   {'agree' if worst <= TOLERANCE else 'DO NOT AGREE'} with the dense model's: {worst:.1e} apart")
    return 0 if worst <= TOLERANCE else 1


def add_up(model):
    """Gradients of replicated parameters are this rank's tokens' share: the sum over ranks is ours to make."""
    for p in model.parameters():
        if not hasattr(p, "full_tensor"):  # the gradient of a layer's DTensor is whole: the layer saw to it
            dist.all_reduce(p.grad)


def progress(done, steps, row):
    bar = "#" * (30 * done // steps)
    end = "" if sys.stdout.isatty() else "\n"
    start = "\r" if sys.stdout.isatty() else ""
    print(f"{start}[{bar:<30}] {done}/{steps}  loss {row[1]:.4f}  dense {row[2]:.4f}", end=end, flush=True)


def keep(args, rows):
    if args.csv is not None:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file).writerows([("step", "loss", "dense"), *rows])
    if args.tensorboard is not None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(args.tensorboard) as writer:
            for step, ours, dense in rows:
                writer.add_scalar("loss/generated module", ours, step)
                writer.add_scalar("loss/dense", dense, step)
    if args.plot is not None:
        args.plot.write_text(curves(rows), encoding="utf-8")


def curves(rows, width=640, height=360, edge=40):
    """The two losses over the steps as an SVG image: the module's a line, the dense model's dots on it."""
    steps, values = [r[0] for r in rows], [v for r in rows for v in r[1:]]
    low, span = min(values), (max(values) - min(values)) or 1.0

    def at(step, loss):
        x = edge + (step - steps[0]) / max(1, steps[-1] - steps[0]) * (width - 2 * edge)
        return f"{x:.1f}", f"{height - edge - (loss - low) / span * (height - 2 * edge):.1f}"

    line = " ".join(",".join(at(step, ours)) for step, ours, _ in rows)
    dots = "".join('<circle cx="{}" cy="{}" r="2.5"/>'.format(*at(step, dense)) for step, _, dense in rows)
    text = [(edge, 24, "loss: line generated module, dots dense"), (edge, height - 12, f"step {steps[0]}")]
    text += [(width - 2 * edge, height - 12, f"step {steps[-1]}"), (2, edge, f"{low + span:.2f}")]
    text += [(2, height - edge, f"{low:.2f}")]
    said = "".join(f'<text x="{x}" y="{y}">{what}</text>' for x, y, what in text)
    head = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    return (
        f"<svg {head}>"
        f'<polyline points="{line}" fill="none" stroke="steelblue" stroke-width="2"/><g fill="darkorange">{dots}</g>'
        f"<g>{said}</g></svg>\n"
    )


if __name__ == "__main__":
    sys.exit(main())
