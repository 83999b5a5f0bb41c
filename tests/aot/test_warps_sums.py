"""The kernel of specialised warps whose own tiles add up (`add = in_tiles`), compiled ahead of time for Hopper: it
fits, passes the lints, and each of them finds the fault that it is there for."""

import pytest
from test_warps import COLUMNS, assert_found, compiled_warps, load, waits_seen

from chunkdsl import pipeline
from chunkdsl.aot.lints import lint
from chunkdsl.aot.targets import find_target
from chunkdsl.plan.tile_kernels import warp_tiles

SPEC = """mesh tp[2] over nvlink
dim M = 1..4096
dim H = 512
dim F = 8192
tensor a : bf16[M, F @ tp]
tensor v : bf16[F @ tp, H]
tensor r : bf16[M @ tp, H]
policy wide { tile = 128x256x64, chunk = 128 along M, add = in_tiles }
op plain(a, v) -> y { y = reduce_scatter(a @ v, M) with wide }
op added(a, v, r) -> y { y = reduce_scatter(a @ v, M) + r with wide }
op total(a, v) -> y { y = all_reduce(a @ v) with wide { algorithm = two_shot } }
"""
KERNELS = [f"{op}_y_partial_warps_{columns}" for op in ("plain", "added", "total") for columns in COLUMNS]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return load(tmp_path_factory.mktemp("sums"), SPEC)


@pytest.fixture(scope="module")
def compiled(made):
    return compiled_warps(made[1])


def test_it_fits_a_multiprocessor_and_passes_the_lints(made, compiled):
    assert list(compiled) == KERNELS
    for name, kernel in compiled.items():
        assert lint(kernel, "sm_90", made[0]) == []
        assert kernel.shared <= find_target("sm_90").shared
        wide, narrow = warp_tiles().sending if name.startswith("total") else warp_tiles().adding
        said = {line.strip().rstrip(";") for line in kernel.ptx.splitlines()}
        assert {f"setmaxnreg.inc.sync.aligned.u32 \t{wide}", f"setmaxnreg.dec.sync.aligned.u32 \t{narrow}"} <= said


MUTANTS = (
    ("flag-scope", "plain_y_partial_warps_256", "sys.acquire", "gpu.acquire"),
    ("flag-scope", "total_y_partial_warps_256", "sys.release", "gpu.release"),
    ("release-over-bulk-store", "total_y_partial_warps_256", "cp.async.bulk.wait_group 0;", ""),
    ("release-over-bulk-store", "plain_y_partial_warps_256", "wait_group 0;", "wait_group.read 0;"),
)


@pytest.mark.parametrize(("name", "kernel", "text", "other"), MUTANTS)
def test_a_fault_planted_in_it_is_found(compiled, name, kernel, text, other):
    assert_found(name, compiled[kernel].ptx, text, other)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_partition_that_looks_at_memory_does_so_before_the_kernels_ahead_end(compiled, kernel):
    """Multipliers add up their last tile where the sum stays: they read what the others sent."""
    assert waits_seen(compiled[kernel].ptx) == (5, 3 if kernel.startswith("total") else 5)


SUM = "reduce_scatter(a @ v, M)"
REASONS = {
    "it multiplies bf16 into f32": SPEC.replace("chunk = 128 along M", "chunk = 128 along M, wire = f32"),
    "rounded to another dtype": SPEC.replace(f"{SUM} with", f"cast({SUM}, f32) with"),
    "gelu takes registers": SPEC.replace(f"{SUM} with", f"gelu({SUM}) with"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_it_cannot_add_up_stays_with_triton_and_says_why(tmp_path, reason):
    path = tmp_path / "pair.chunk"
    path.write_text(REASONS[reason])
    read = pipeline.read_one(str(path))
    assert not read.report.failed, read.report.diagnostics
    product, total = read.schedule.ops[0].launches
    assert reason in product.why_triton and not product.warps and total.within
