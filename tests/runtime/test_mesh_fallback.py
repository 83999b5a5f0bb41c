"""Modules on a mesh of two axes: four processes, gloo, a DeviceMesh, ragged nested shards; DTensors and FSDP2."""

from pathlib import Path

import placed_ranks
import pytest
from forked_ranks import run_ranks

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

SPEC = """mesh dp[2], tp[2]
dim M = 0..64
dim H = 16
dim F = 32
tensor x  : bf16[M @ (dp, tp), H]
tensor w  : bf16[F @ tp, H]
tensor v  : bf16[H, F @ tp]
tensor wf : bf16[F @ (dp, tp), H]
tensor vf : bf16[H, F @ (dp, tp)]
op local(x, w, v) -> y {
    y = reduce_scatter(gelu(all_gather(x, over = tp) @ w.T) @ v.T, M, over = tp)
}
op flat(x, wf, vf) -> y { y = reduce_scatter(relu(all_gather(x, over = (dp, tp)) @ wf.T) @ vf.T, M, over = (dp, tp)) }
op total(x, wf, vf) -> y { y = all_reduce(all_gather(x, over = (dp, tp)) @ wf.T @ vf.T, over = (dp, tp)) }
"""
RANK = """
import sys, warnings
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
warnings.simplefilter("ignore")
folder, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
sys.path.insert(0, folder)
import two_axes
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
try:
    two_axes.TwoAxes(device="cpu", mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp")))
except ValueError as error:
    assert "runs on a mesh of dims ('dp', 'tp'), outer first" in str(error), error
else:
    raise SystemExit("a mesh with swapped dims was taken")
m = two_axes.TwoAxes(mesh=mesh, device="cpu", M=64)
g = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64) * 0.3
w, v = draw(32, 16), draw(16, 32)
at, tp = rank // 2, rank % 2
part = lambda t, dim, n, i: (list(t.chunk(n, dim)) + [t.narrow(dim, 0, 0)] * n)[i]
mine = lambda t, dim: part(part(t, dim, 2, at), dim, 2, tp)
for rows in (9, 12, 3, 0):
    x = draw(rows, 16)
    y = m.local.fallback(mine(x, 0), part(w, 0, 2, tp), part(v, 1, 2, tp), M=rows)
    wanted = torch.nn.functional.gelu(x @ w.T) @ v.T
    assert torch.allclose(y, mine(wanted, 0), atol=1e-9), (rank, rows, "local", y.shape)
    y = m.flat.fallback(mine(x, 0), mine(w, 0), mine(v, 1), M=rows)
    assert torch.allclose(y, mine(torch.relu(x @ w.T) @ v.T, 0), atol=1e-9), (rank, rows, "flat", y.shape)
    y = m.total.fallback(mine(x, 0), mine(w, 0), mine(v, 1), M=rows)
    assert torch.allclose(y, x @ w.T @ v.T, atol=1e-9), (rank, rows, "total", y.shape)
x = draw(12, 16).bfloat16()
y = m.local(mine(x, 0), part(w, 0, 2, tp).bfloat16(), part(v, 1, 2, tp).bfloat16())
assert y.dtype is torch.bfloat16 and y.shape == (3, 16)
m.close()
sys.path.insert(0, HERE)
import placed, placed_one, placed_ranks
placed_ranks.check(placed.Placed, placed_one.PlacedOne, mesh)
dist.destroy_process_group()
print("rank", rank, "is right")
"""


@pytest.fixture
def folder(tmp_path):
    for name, spec, world in (
        ("two_axes", SPEC, (2, 2)), ("placed", placed_ranks.TWO_AXES, (2, 2)), ("placed_one", placed_ranks.ONE_AXIS, 2)
    ):  # fmt: skip
        checked = check_source(Source(f"{name}.chunk", spec))
        assert not checked.report.failed, checked.report.diagnostics
        (tmp_path / f"{name}.py").write_text(render_module(checked.schedule, (world,)), encoding="utf-8")
    return tmp_path


def test_four_processes_agree_with_whole_tensors(folder):
    program = folder / "one_rank.py"
    program.write_text(f"HERE = {str(Path(__file__).parent)!r}\n{RANK}", encoding="utf-8")
    for rank, (status, out, err) in enumerate(run_ranks(program, 4, folder)):
        assert status == 0 and out.strip() == f"rank {rank} is right", err[-2000:]
