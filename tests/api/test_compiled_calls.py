"""`chunkdsl.compile`: kernels launched like on one GPU, on simulated ranks; what is read and what is refused."""

import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from chunkdsl import ChunkError, ChunkSchedule, compile, pipeline

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/kernels", "specs/kernels", "examples")]
import fused_matmul  # noqa: E402
import kernel_specs  # noqa: E402
import kernel_zoo as zoo  # noqa: E402
import matmul  # noqa: E402

CONSTANTS = dict(BM=32, BN=32, BK=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("modules")


def integers(*shape, seed=0):
    drawn = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(torch.bfloat16)


def product(a, b):
    return (a.float() @ b.float()).to(torch.bfloat16)


def tiles(meta):
    return triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"])


def gathered_calls(a, b, world):
    """Positional arguments of `matmul_2d` by rank, rows of `a` sharded."""
    (m, k), n, rows = a.shape, b.shape[1], -(-a.shape[0] // world)
    shards = [a[r * rows : (r + 1) * rows] for r in range(world)]
    return [(s, b, torch.empty(m, n, dtype=a.dtype), m, n, k, k, n, n) for s in shards]


def test_a_gathered_argument_and_one_module_for_all_numbers_of_rows(folder):
    schedule = ChunkSchedule("all_gather", chunk_size_bytes=3072, world_size=2, overlap_policy="swizzle", max_rows=80)
    fused = compile(kernel=zoo.matmul_2d, schedule=schedule, target_backend="triton", folder=folder)
    b = integers(64, 96)
    for m in (70, 33):
        a = integers(m, 64, seed=m)
        calls = gathered_calls(a, b, 2)
        for result, call in zip(fused[tiles].simulate(calls, **CONSTANTS), calls, strict=True):
            assert torch.equal(result, product(a, b)) and result.data_ptr() == call[2].data_ptr()
    (built,) = fused.modules
    text = built.spec.read_text()
    assert "dim M = 1..80" in text and "chunk = 3072 B, route = swizzle" in text
    assert "a_ptr : bf16[M @ ranks, K]" in text and "arg stride_am = a_ptr.stride(0)" in text
    assert "Do not edit" in built.path.read_text() and str(folder) not in built.path.read_text()


def test_a_reduced_result(folder):
    world, m, n, k = 2, 53, 96, 64
    a, b = integers(m, k), integers(k, n, seed=1)
    half, rows = k // world, -(-m // world)
    calls = []
    for r in range(world):
        mine = a[:, r * half : (r + 1) * half].contiguous(), b[r * half : (r + 1) * half]
        c = torch.empty(min(rows, m - r * rows), n, dtype=a.dtype)
        calls.append((*mine, c, m, n, half, half, 1, n, 1, n, 1))
    fused = compile(matmul.matmul_kernel, schedule=ChunkSchedule("reduce_scatter", world_size=world), folder=folder)

    def grid(meta):
        return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

    results = fused[grid].simulate(calls, **CONSTANTS, GROUP=8)
    assert torch.equal(torch.cat(results), product(a, b))
    assert "dim K = 64" in fused.modules[0].spec.read_text()  # a rank has half of it


def test_two_gathered_arguments_and_a_result_with_rows_of_its_own(folder):
    """Attention over gathered keys and values, held against torch."""
    q, keys, values = integers(40, 32), integers(56, 32, seed=1), integers(56, 32, seed=2)
    calls = [(q, keys[:28], values[:28], torch.empty_like(q)), (q, keys[28:], values[28:], torch.empty_like(q))]
    schedule = ChunkSchedule("all_gather", world_size=2, overlap_policy={"chunk": "16 along T", "via": "copy_engine"})
    fused = compile(zoo.attention_kv, schedule=schedule, folder=folder, gathered=("k_ptr", "v_ptr"))
    results = fused[(3,)].simulate([(*tensors, 40, 56, 0.25, 32, 16, 16) for tensors in calls])
    wanted = torch.softmax(q.float() @ keys.float().T * 0.25, -1) @ values.float()
    for result in results:
        torch.testing.assert_close(result.float(), wanted, rtol=2e-2, atol=2e-2)


def test_sizes_of_equal_value_are_told_apart(folder):
    """All sizes and strides are 64: names and traces decide."""
    fused = compile(matmul.matmul_kernel, schedule=ChunkSchedule("all_gather", world_size=2), folder=folder)
    a, b, c = (torch.empty(n, 64, dtype=torch.bfloat16, device="meta") for n in (32, 64, 64))
    sizes = (64, 64, 64, 64, 1, 64, 1, 64, 1)
    text = fused[(4,)].build(a, b, c, *sizes, **CONSTANTS, GROUP=8, num_warps=4).spec.read_text()
    for line in ("[M @ ranks, K]", "[K, N]", "c_ptr = c_ptr : bf16[M, N]", "grid = cdiv(M, BM) * cdiv(N, BN)"):
        assert line in text
    assert "num_warps = 4" in text


def test_the_kernels_arithmetic_says_which_of_two_is_gathered(folder):
    """Both operands have 32 rows, a shard's and all that there are."""
    fused = compile(zoo.matmul_2d, schedule=ChunkSchedule("all_gather", world_size=2), folder=folder)
    a, b, c = (torch.empty(*s, dtype=torch.bfloat16, device="meta") for s in ((32, 32), (32, 48), (64, 48)))
    built = fused[tiles].build(a, b, c, 64, 48, 32, 32, 48, 48, **CONSTANTS)
    assert built.roles.gathered == ("a_ptr",)


def test_names_decide_nothing_where_they_mislead(folder):
    """`M` and `N` stand for each other's sizes: the trace refuses the likelier reading and takes the other."""
    fused = compile(misleading, schedule=ChunkSchedule("all_gather", world_size=2), folder=folder)
    x, y = (torch.empty(*s, dtype=torch.bfloat16, device="meta") for s in ((24, 48), (48, 16)))
    text = fused[(48,)].build(x, y, 48, 48, BLOCK=64).spec.read_text()
    assert "x_ptr = x_ptr : [N, M]" in text and "grid = N\n" in text


@triton.jit
def misleading(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    """The sum of each row of x[N, M], 16 times."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + row * M + at, mask=at < M, other=0.0).to(tl.float32), axis=0)
    tl.store(y_ptr + row * 16 + tl.arange(0, 16), (total + N * 0 + tl.zeros([16], tl.float32)).to(tl.bfloat16))


def test_a_decorated_kernel_compiled_ahead_for_a_gpu(folder):
    decorate = compile(schedule=ChunkSchedule("all_gather", world_size=2), target_backend="sm_90", folder=folder)
    fused = decorate(zoo.rms_norm)  # autotuned: the call pins the configuration
    x, w, y = (torch.empty(*s, dtype=torch.bfloat16) for s in ((27, 96), (96,), (53, 96)))
    built = fused[(53,)].build(x, w, y, 96, 96, 96, 1e-6, BLOCK=128)
    assert "arg eps = 1e-06" in built.spec.read_text()


def test_a_kernel_and_its_spec_give_the_module_that_build_writes(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(pipeline, "BUILT_FOR", range(1, 3))
    spec = tmp_path / "zoo.chunk"
    path = ROOT / "tests" / "kernels" / "kernel_zoo.py"
    local = "../" * (len(spec.parent.resolve().parts) - 1) + str(path)[1:]
    spec.write_text(kernel_specs.gathered("rms_norm").replace(kernel_specs.PATH, local))
    module = compile(zoo.rms_norm, spec, folder=folder)
    assert Path(module.__file__).read_text() == pipeline.build(str(spec)).module
    assert module.Zoo.__name__ == "Zoo"
    with pytest.raises(ChunkError, match="does not name `softmax`"):
        compile(zoo.softmax, spec, folder=folder)


def test_the_example_runs_on_simulated_ranks(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fused_matmul.main() == 0
    assert "2 results equal the whole product" in capsys.readouterr().out


# ---- what is refused


def refusal(kernel, args, *, world=2, grid=(53,), **named):
    fused = compile(kernel, schedule=ChunkSchedule("all_gather", world_size=world), folder=named.pop("folder"))
    with pytest.raises(ChunkError) as caught:
        fused[grid].build(*args, **named)
    return caught.value


def test_a_fault_of_the_kernel_is_told_at_its_own_line(folder):
    x, y = (torch.empty(n, 96, dtype=torch.bfloat16) for n in (27, 53))
    found = refusal(zoo.adds_atomically, (x, y, 96), BLOCK=128, folder=folder)
    line = next(i for i, text in enumerate(Path(zoo.__file__).read_text().splitlines(), 1) if "tl.atomic_add" in text)
    (diagnostic,) = found.diagnostics
    assert diagnostic.code == "CD650" and f"kernel_zoo.py:{line}: an atomic" in diagnostic.message


def test_a_call_that_fits_no_reading_says_why_the_likeliest_does_not(folder):
    x, w, y = (torch.empty(*s, dtype=torch.bfloat16) for s in ((27, 96), (96,), (53, 96)))
    found = refusal(zoo.rms_norm, (x, w, y, 96, 96, 96, 1e-6), BLOCK=64, folder=folder)
    line = next(i for i, text in enumerate(Path(zoo.__file__).read_text().splitlines(), 1) if "def rms_norm" in text)
    (diagnostic,) = found.diagnostics
    assert diagnostic.code == "CD663" and f"kernel_zoo.py:{line}: leaves element [0, 64] of y_ptr" in diagnostic.message


@pytest.mark.parametrize("what, args, named", [
    ("`BLOCK` of `softmax` is missing", ("y", "x", 96, 96, 53, 96), {}),
    ("`BLOCK` is given twice", ("y", "x", 96, 96, 53, 96, 128), {"BLOCK": 128}),
    ("has no parameter `BLOK`", ("y", "x", 96, 96, 53, 96), {"BLOK": 128}),
    ("is torch.int32", ("y", "i", 96, 96, 53, 96, 128), {}),
    ("is not contiguous", ("y", "t", 96, 96, 53, 96, 128), {}),
    ("`in_stride` is None", ("y", "x", None, 96, 53, 96, 128), {}),
])  # fmt: skip
def test_an_unfit_argument_is_named(what, args, named, folder):
    tensors = {
        "x": torch.empty(27, 96, dtype=torch.bfloat16), "y": torch.empty(53, 96, dtype=torch.bfloat16),
        "i": torch.empty(27, 96, dtype=torch.int32), "t": torch.empty(96, 27, dtype=torch.bfloat16).T,
    }  # fmt: skip
    found = refusal(zoo.softmax, [tensors.get(a, a) for a in args], **named, folder=folder)
    assert what in str(found) and found.diagnostics[0].code == "CD662"


def test_a_grid_that_cannot_be_computed_is_the_callers(folder):
    x, y = (torch.empty(n, 96, dtype=torch.bfloat16) for n in (27, 53))
    found = refusal(zoo.softmax, (y, x, 96, 96, 53, 96, 128), grid=lambda meta: (meta["BM"],), folder=folder)
    assert "the grid cannot be computed: KeyError: 'BM'" in str(found) and "BLOCK" in found.diagnostics[0].help


def test_shapes_that_are_not_those_of_the_call(folder):
    x, y = (torch.empty(n, 96, dtype=torch.bfloat16, device="meta") for n in (27, 53))
    schedule = ChunkSchedule("all_gather", world_size=2)
    fused = compile(zoo.softmax, schedule=schedule, folder=folder, shapes={"in_ptr": ("n_rows",)})
    with pytest.raises(ChunkError, match="shapes of `in_ptr` are not those of this call"):
        fused[(4,)].build(y, x, 96, 96, 53, 96, BLOCK=128)


def test_a_result_that_shares_memory_with_an_argument_is_refused(folder):
    memory = torch.empty(80, 96, dtype=torch.bfloat16)
    found = refusal(zoo.softmax, (memory[:53], memory[52:79], 96, 96, 53, 96, 128), grid=(4,), folder=folder)
    assert "the result `out_ptr` and the argument `in_ptr` share memory" in str(found)


def test_a_policy_that_is_none_is_told_at_the_spec(folder):
    schedule = ChunkSchedule("all_gather", world_size=2, overlap_policy={"rout": "ring"})
    x, y = (torch.empty(n, 96, dtype=torch.bfloat16) for n in (27, 53))
    with pytest.raises(ChunkError, match="rout") as caught:
        compile(zoo.softmax, schedule=schedule, folder=folder)[(4,)].build(y, x, 96, 96, 53, 96, BLOCK=128)
    assert caught.value.diagnostics[0].span and "rout = ring" in caught.value.source.text


def test_a_fused_call_needs_a_process_group_and_a_gpu(folder):
    x, y = (torch.empty(n, 96, dtype=torch.bfloat16) for n in (27, 53))
    fused = compile(zoo.softmax, schedule=ChunkSchedule("all_gather", world_size=2), folder=folder)
    with pytest.raises(ChunkError, match="without a process group"):
        fused[(4,)](y, x, 96, 96, 53, 96, BLOCK=128)


@pytest.mark.parametrize("kernel, why", [
    (len, "is no Triton kernel"), ("softmax", "is no Triton kernel"), (zoo, "is no Triton kernel"),
])  # fmt: skip
def test_what_is_no_kernel_is_refused(kernel, why):
    with pytest.raises(ChunkError, match=why):
        compile(kernel, schedule=ChunkSchedule("all_gather", world_size=2))
