"""The kernel of specialised warps, compiled ahead of time: it fits Hopper, passes the lints, and each of them finds the
fault that it is there for. Which launches have it, and at which sizes."""

import dataclasses
import importlib.util

import pytest
import torch

from chunkdsl import pipeline
from chunkdsl.aot.lints import LINTS, lint
from chunkdsl.aot.record import RecordingMachine, blank
from chunkdsl.aot.targets import compile_kernel, find_target
from chunkdsl.plan.tile_kernels import warp_shape, warp_tiles
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = 1..4096
dim H = 512
dim F = 16384
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor a : f16[M, F @ tp]
tensor v : f16[F @ tp, H]
policy wide { tile = 128x256x64, chunk = 128 along M, route = swizzle }
op up(x, w, b) -> y { y = all_gather(x) @ w.T + b with wide { via = copy_engine } }
op down(a, v) -> y { y = reduce_scatter(a @ v, M) with wide { place = co_located } }
op every(a, v) -> y { y = all_reduce(a @ v) with wide { place = co_located, algorithm = one_shot } }
"""


COLUMNS = [shape.columns for shape in warp_tiles().shapes]
KERNELS = [f"{n}_warps_{columns}" for n in ("up_y", "down_y_partial", "every_y_partial") for columns in COLUMNS]


def load(folder, text, world=2):
    """(text of the spec's module, its class, that finds itself on a machine with Gluon)."""
    path = folder / "pair.chunk"
    path.write_text(text)
    text = render_module(pipeline.read_one(str(path)).schedule, (world,))
    (folder / "pair.py").write_text(text)
    spec = importlib.util.spec_from_file_location("built_pair", folder / "pair.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Pair.warps = warp_tiles().triton[0]
    return text, module.Pair


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return load(tmp_path_factory.mktemp("warps"), SPEC)


def compiled_warps(made):
    """By launch and columns of a tile, what the compiler makes of its kernel of specialised warps."""
    machine = RecordingMachine(0, 2, "sm_90")
    made(machine=machine)
    uses = [u for u in machine.uses if u.name.endswith("_warps")]
    return {f"{u.name}_{columns_of(u)}": compile_kernel(u, "sm_90") for u in uses}


def columns_of(use):
    return use.constants[(use.kernel.arg_names.index("BN"),)]


@pytest.fixture(scope="module")
def compiled(made):
    return compiled_warps(made[1])


def test_it_fits_a_multiprocessor_and_passes_the_lints(made, compiled):
    assert list(compiled) == KERNELS
    for kernel in compiled.values():
        assert lint(kernel, "sm_90", made[0]) == []
        assert kernel.spills == 0 and kernel.shared <= find_target("sm_90").shared
        wide, narrow = warp_tiles().registers
        assert {f"setmaxnreg.inc.sync.aligned.u32 \t{wide}", f"setmaxnreg.dec.sync.aligned.u32 \t{narrow}"} <= {
            line.strip().rstrip(";") for line in kernel.ptx.splitlines()
        }
        assert "wgmma.mma_async" in kernel.ptx
    stores = [k.ptx.count("cp.async.bulk.tensor.2d.global.shared") for k in compiled.values()]
    assert stores == [8, 8, 8, 8, 16, 16], "four pieces of each half of a tile: here, to an owner, to both ranks"


MUTANTS = (
    ("tma-load-without-proxy-fence", "up_y_warps_256", "fence.proxy.async.global;", ""),
    ("flag-scope", "up_y_warps_256", "sys.acquire", "gpu.acquire"),
    ("acquire-by-one-thread", "up_y_warps_256", "bar.warp.sync", "// bar.warp.sync"),
    ("release-over-bulk-store", "down_y_partial_warps_256", "cp.async.bulk.wait_group 0;", ""),
    ("release-over-bulk-store", "every_y_partial_warps_256", "wait_group 0;", "wait_group.read 0;"),
    ("flag-scope", "down_y_partial_warps_256", "sys.release", "gpu.release"),
)


@pytest.mark.parametrize(("name", "kernel", "text", "other"), MUTANTS)
def test_a_fault_planted_in_it_is_found(compiled, name, kernel, text, other):
    assert_found(name, compiled[kernel].ptx, text, other)


def assert_found(lint_name, ptx, text, other):
    """The lint says nothing of `ptx`, and something where `other` stands in it instead of `text`."""
    assert text in ptx and LINTS[lint_name].run(ptx) == []
    assert LINTS[lint_name].run(ptx.replace(text, other))


def starts_early(ptx):
    """Do the lints say that a kernel begins, or lets another begin, too early?"""
    return any(LINTS[name].run(ptx) for name in ("access-before-early-start", "end-before-kernel-ahead"))


def waits_seen(ptx):
    """(waits for the kernels ahead, how many of them the lints find gone, each in its turn)."""
    first, *rest = ptx.split(WAIT)
    found = 0
    for i in range(len(rest)):
        found += starts_early(first + "".join((WAIT if i != k else "") + part for k, part in enumerate(rest)))
    return len(rest), found


WAIT = "griddepcontrol.wait;"


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_partition_waits_for_the_kernels_ahead_before_it_looks_at_memory(compiled, kernel):
    """It starts while they still run. Multipliers of `up` read a bias, others touch shared memory alone."""
    assert waits_seen(compiled[kernel].ptx) == (5, 5 if kernel.startswith("up_y") else 3)
    admit = "griddepcontrol.launch_dependents;"
    assert compiled[kernel].ptx.count(admit) == 1, "it lets the kernel behind start, once those ahead have ended"
    hasty = compiled[kernel].ptx.replace(admit, "").replace("setmaxnreg", f"{admit} setmaxnreg", 1)
    assert starts_early(hasty)


def test_spills_and_too_much_shared_memory_are_found(compiled):
    kernel = compiled["up_y_warps_256"]
    assert LINTS["spills"].run(dataclasses.replace(kernel, spills=64))
    assert LINTS["too-much-shared-memory"].run(dataclasses.replace(kernel, shared=kernel.shared + 4096))


LOOP = "    active = active * ((both >> 32) == 0).to(tl.int32)\n    while tile < tiles * W * active:\n"


LOOPS = (
    ("loop-carried-copy", "    kept = stage\n", "        kept = stage\n"),
    (
        "carried-bound",
        "    low = 64\n",
        "        for k in range(low, depth):\n            turn += 1\n        low = 0\n",
    ),
)


@pytest.mark.parametrize(("name", "before", "inside"), LOOPS)
def test_loops_that_the_compiler_would_get_wrong_are_found(made, name, before, inside):
    text = made[0]
    start = text.index(LOOP, text.index("def up_y_load("))
    mutant = text[:start] + before + LOOP + inside + text[start + len(LOOP) :]
    assert LINTS[name].run(text) == [] and LINTS[name].run(mutant)


CALLS = (
    # rows, what is different of the instance, columns of the tiles of specialised warps that compute the product
    (4096, {}, 256),
    (4096, {"warps": 0}, 0),
    (4096, {"warps": 35}, 0),
    (1024, {}, 256),  # 256 tiles of so many columns, two waves: no more than four of half as many
    (512, {}, 256),  # 128 of them, one wave
    (256, {}, 128),  # 64
    (1, {}, 128),
)


@pytest.mark.parametrize(("rows", "instance", "expected"), CALLS)
def test_a_call_is_computed_by_the_kernel_of_its_shape_class(made, rows, instance, expected):
    machine = RecordingMachine(0, 2, "sm_90")
    m = made[1](machine=machine)
    vars(m).update(instance)
    machine.log.clear()
    given = (((rows + 1) // 2, 512), (8192, 512), (8192,), (rows, 8192))
    m.up.run(True, 1, {"M": rows}, *(blank(shape, torch.bfloat16) for shape in given))
    launched = [name for kind, name, _ in machine.log if kind == "launch" and name.startswith("up_y")]
    assert launched == ["up_y_warps" if expected else "up_y"]
    if expected:
        fresh = RecordingMachine(0, 2, "sm_90")
        m.up.machine = fresh
        m.up.run(True, 1, {"M": rows}, *(blank(shape, torch.bfloat16) for shape in given))
        assert [columns_of(use) for use in fresh.uses if use.name == "up_y_warps"] == [expected]
        m.up.machine = machine
    machine.log.clear()
    m.up.run(False, 1, {"M": rows}, *(blank(shape, torch.bfloat16) for shape in given))
    assert ("launch", "up_y", "main") in machine.log, "`exact` is Triton's: the two check each other"


ANY_COLUMNS = """mesh tp[4] over nvlink
dim M = 1..4096
dim N = 1..8192
dim H = 512
tensor x : bf16[M @ tp, H]
tensor w : bf16[N @ tp, H]
op up(x, w) -> y { y = all_gather(x) @ w.T with { tile = 128x256x64, chunk = 128 along M, via = copy_engine } }
"""


def test_a_warm_up_compiles_what_later_calls_of_other_columns_take(tmp_path):
    """The least sizes leave a rank columns that are no multiple of 8, or none at all, which later calls have."""
    machine = RecordingMachine(3, 4, "sm_90")
    m = load(tmp_path, ANY_COLUMNS, 4)[1](machine=machine)
    ready = [use.key for use in machine.uses if use.name == "up_y_warps"]
    assert {columns_of(use) for use in machine.uses if use.name == "up_y_warps"} == set(COLUMNS)
    for columns, kernel in ((4096, "up_y_warps"), (36, "up_y"), (3, "up_y")):  # of the last rank: 1024, 9 and none
        machine.log.clear()
        shapes = (m.up.local_shape(shape, {"M": 64, "N": columns}) for _, shape in m.up.PARAMETERS.values())
        given = [blank(shape, torch.bfloat16) for shape in (*shapes, (64, m.up.part(columns, True, 3)))]
        m.up.run(True, 1, {"M": 64, "N": columns}, *given)
        assert ("launch", kernel, "main") in machine.log, columns
    found = [use.key for use in machine.uses if use.name == "up_y_warps"]
    assert found == ready, "nothing is compiled while others wait"


@pytest.mark.parametrize("columns", [0, 4, 8, 264, 4096])
@pytest.mark.parametrize(("rows", "depth"), [(1, 512), (700, 512), (4096, 512), (4096, 192)])
def test_the_cost_model_takes_the_tile_that_the_module_takes(made, rows, columns, depth):
    machine = RecordingMachine(0, 2, "sm_90")
    op, schedule = made[1](machine=machine).down, pipeline.check_source(Source("pair.chunk", SPEC)).schedule.ops[1]
    tiles, names = -(-rows // 128) * max(1, -(-columns // 256)), op.run.__globals__
    chosen = names["warp_tiles"](op, names["DOWN_Y_PARTIAL"], tiles, columns, depth, 1)
    expected = warp_shape(schedule.launches[0], schedule, "sm_90", 2, tiles, columns, depth, machine.sms)
    assert chosen["BN"] == (expected.columns if expected else 256) and ("WIDE" in chosen) == (expected is not None)


def test_what_is_finished_is_carried_by_a_launch_beside_that_of_the_tiles(tmp_path):
    machine = RecordingMachine(0, 2, "sm_90")
    m = load(tmp_path, SPEC.replace("place = co_located", "place = own_sms(4)"))[1](machine=machine)
    kernels = {use.name: use for use in machine.uses if use.name.startswith("down_y_partial")}
    assert len([use for use in machine.uses if use.name == "down_y_partial"]) == 2, "fused and exact, no third variant"
    assert list(kernels) == ["down_y_partial", "down_y_partial_warps"]
    machine.log.clear()
    m.down.run(
        True, 1, {"M": 4096}, *(blank(shape, torch.float16) for shape in ((4096, 8192), (8192, 512), (2048, 512)))
    )
    lane = "down_y_partial_movers"
    start = machine.log.index(("fork", "", lane))
    assert machine.log[start : start + 4] == [
        ("fork", "", lane),
        ("launch", "down_y_partial_warps", "main"),
        ("launch", "down_y_partial", lane),
        ("join", "", lane),
    ]


def test_a_tile_goes_to_as_many_ranks_as_a_storer_has_registers_for(made):
    machine = RecordingMachine(0, 2, "sm_90")
    every, most = made[1](machine=machine).every, warp_tiles().copies
    given = [blank(shape, torch.float16) for shape in ((4096, 8192), (8192, 512), (4096, 512))]
    for every.world, expected in ((most, "every_y_partial_warps"), (most + 1, "every_y_partial")):
        machine.log.clear()
        every.run(True, 1, {"M": 4096}, *given)
        assert ("launch", expected, "main") in machine.log


REASONS = {
    "its tile is 128x128x64": SPEC.replace("128x256x64", "128x128x64"),
    "gelu takes registers": SPEC.replace("all_gather(x) @ w.T + b", "gelu(all_gather(x) @ w.T + b)"),
    "it multiplies f32": SPEC.replace("bf16[", "f32[").replace("128x256x64", "64x64x16"),
    "chunks that its own programs carry": SPEC.replace("via = copy_engine", "via = ldst, place = own_sms(16)"),
    "reads more than a row": SPEC.replace(
        "tensor a ", "tensor r : bf16[M, F @ tp]\ntensor a "
    ).replace("up(x, w, b)", "up(x, w, r)").replace("w.T + b with", "w.T + r with"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_what_it_cannot_do_stays_with_triton_and_says_why(tmp_path, reason):
    path = tmp_path / "pair.chunk"
    path.write_text(REASONS[reason])
    read = pipeline.read_one(str(path))
    assert not read.report.failed, read.report.diagnostics
    op = read.schedule.ops[0]
    (launch,) = (n for n in op.launches if n.products)
    assert reason in launch.why_triton and not launch.warps
