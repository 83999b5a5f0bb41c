"""The small twin that `verify` simulates: the same source but for constants, and small in every way that matters."""

import contextlib
import io
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

from chunkdsl.ir.layouts import Cyclic
from chunkdsl.ir.meshes import bindings, inner_of, scope, world_text
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.ir.types import evaluate
from chunkdsl.pipeline import check_source
from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.settled import Gate
from chunkdsl.render.module import render_module
from chunkdsl.source import Source
from chunkdsl.verify.simulate import call_sizes
from chunkdsl.verify.twin import LONG_BLOCK, TILE, shrink, walk

ROOT = Path(__file__).parent.parent.parent
SPECS = sorted([*(ROOT / "specs").glob("*.chunk"), *(ROOT / "tests" / "gpu" / "specs").glob("*.chunk")])
WORLDS = {"imported_ring": (8,), "two_tier_gather": ((1, 2), (2, 2)), "dp_tp_mlp": ((1, 2), (2, 2))}  # else 2 and 4
PAIRS = [(p, w) for p in SPECS for w in WORLDS.get(p.stem, (2, 4))]
SOURCES = [(p, w) for p, w in PAIRS if w == WORLDS.get(p.stem, (2, 4))[0] or p.stem in ("tp_mlp", "plan_double_ring")]
SOURCES = [(p, w) for p, w in SOURCES if p.stem != "transformer_layer"]  # large, and its ops are those of two others
TILED = [(p, w) for p, w in PAIRS if p.stem != "decode_all_reduce"]  # a small all-reduce has no tiles and no shards


def schedule_of(text, path="a.chunk"):
    checked = check_source(Source(path, text))
    assert not checked.report.failed, checked.report.diagnostics
    return checked.schedule


@pytest.fixture(scope="module")
def schedules():
    found = {}
    for p in SPECS:
        with contextlib.chdir(p.parent):  # plan files lie beside the specs
            found[p] = schedule_of(p.read_text(encoding="utf-8"), p.name)
    return found


def without_warps(schedule):
    """The schedule of a module whose tiles are all Triton's."""

    def settled(op):
        return replace(op, launches=tuple(replace(n, why_triton="a twin has other tiles") for n in op.launches))

    return replace(schedule, ops=tuple(settled(op) for op in schedule.ops))


def masked(text):
    """(kind, text) of every token, numbers masked; comments and docstrings too are compared, line breaks are not."""
    skipped = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return [
        (t.type, "#" if t.type == tokenize.NUMBER else t.string)
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type not in skipped
    ]


def different(shipped, twin):
    """Pairs of tokens that differ, and whether one text has more of them."""
    pairs = [(a, b) for a, b in zip(shipped, twin, strict=False) if a != b]
    return pairs + ([("more tokens", len(shipped) - len(twin))] if len(shipped) != len(twin) else [])


@pytest.mark.parametrize("path, world", SOURCES, ids=lambda p: getattr(p, "stem", str(p)))
def test_twin_and_shipped_source_differ_in_constants_only(schedules, path, world):
    # Specialised warps have one size of tile, so no twin has them and the simulator never runs them: what they compute
    # is held against the Triton kernel's bits on GPUs. Everything else of a module is the same with and without them.
    shipped = without_warps(schedules[path])
    twin = shrink(shipped, world)
    ours, theirs = (render_module(s, (world,)) for s in (shipped, twin))
    assert ours != theirs
    assert different(masked(ours), masked(theirs)) == []
    assert twin.digest == shipped.digest
    print(f"{path.name}, {world_text(world)} ranks, sha256 {twin.digest[:16]}")
    for op in twin.ops:
        for launch, large in zip(op.launches, shipped.ops[twin.ops.index(op)].launches, strict=True):
            sizes = [(t.bm, t.bn, t.bk) for t in (large.tiling, launch.tiling)]
            print(f"    {launch.name}: tile {sizes[0]} -> {sizes[1]}, chunk {large.chunk} -> {launch.chunk}")


def test_a_difference_in_more_than_constants_is_seen(schedules):
    text = render_module(schedules[SPECS[0]], (2,))
    for old, new in ((" + ", " - "), ("tl.debug_barrier()", "pass"), ('scope="sys"', 'scope="gpu"')):
        assert old in text
        assert different(masked(text), masked(text.replace(old, new, 1)))
    assert different(masked(text), masked(text.replace("128", "16"))) == []


@pytest.mark.parametrize("path, world", TILED, ids=lambda p: getattr(p, "stem", str(p)))
def test_the_twin_has_two_of_everything_and_ragged_edges(schedules, path, world):
    twin = shrink(schedules[path], world)
    full = {r.name: r.high for r in twin.ranges} | bindings(twin.mesh, world)
    ragged = 0
    for op in twin.ops:
        ranks = scope(twin.mesh, op.over, world)
        for n in op.launches:
            g = Geometry.of(n.rows, n.space == "whole", op.pad, full, ranks, inner_of(op.over, full))
            for chunk in {n.chunk, n.out_chunk} - {None}:
                assert g.chunks(chunk) >= 2, n.name
            for extent in [n.cols] + ([n.depth] if n.products else []):
                mine = evaluate(extent.size, full) // (ranks if extent.sharded else 1)
                assert mine >= 2 * TILE or mine % TILE, n.name
                assert -(-mine // TILE) >= 2, n.name
                ragged += mine % TILE != 0
    assert ragged >= 2


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("path", sorted({p for p, _ in TILED}), ids=lambda p: p.stem)
def test_several_calls_of_every_kind_of_size(schedules, path, world):
    twin = shrink(schedules[path], world)
    (m,) = twin.ranges
    calls = [c[m.name] for c in call_sizes(twin, world)]
    assert all(m.holds(c) for c in calls) and len(set(calls)) == len(calls)
    assert 1 in calls and max(calls) > TILE * world
    assert world < 3 or any(1 < c < world for c in calls)  # fewer rows than ranks
    assert world < 2 or any(c % world for c in calls if c > world)  # a ragged shard


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [("0..1024", {0, 1}), ("1..1024", {1}), ("8..1024 step 8", {4}), ("64..64", {1}), ("0..1024 step 128", {0, 4})],
)
def test_calls_stay_within_range_and_step(declared, wanted):
    text = (
        f"mesh tp[2] over nvlink\ndim M = {declared}\ndim H = 4096\ndim N = 4096\ntensor x : bf16[M @ tp, H]\n"
        "tensor w : bf16[N @ tp, H]\nop f(x, w) -> y { y = all_gather(x) @ w.T }\n"
    )
    shipped = schedule_of(text)
    for made in (shipped, shrink(shipped, 2)):
        calls = [c["M"] for c in call_sizes(made, 2)]
        assert all(made.ranges[0].holds(c) for c in calls), calls
    assert wanted <= {c["M"] for c in call_sizes(shrink(shipped, 2), 2)}


def test_equal_sizes_stay_equal_and_others_apart():
    text = (ROOT / "specs" / "tp_mlp.chunk").read_text(encoding="utf-8")
    twin = shrink(schedule_of(text), 4)
    shapes = {p.name: [str(e.size) for e in p.shape] for p in twin.ops[0].parameters}
    assert shapes["x"][1] == shapes["w1"][1] == shapes["w2"][0]
    assert shapes["w1"][0] == shapes["b1"][0] == shapes["w2"][1] != shapes["x"][1]


@pytest.mark.parametrize("world", [2, 8])
def test_the_twin_of_small_all_reduces_has_all_forms_and_several_blocks(world):
    from chunkdsl.plan.unroll_exchange import form_of, payload_words

    twin = shrink(schedule_of((ROOT / "specs" / "decode_all_reduce.chunk").read_text(encoding="utf-8")), world)
    for op in twin.ops:
        words = [payload_words(op.exchange, c) for c in call_sizes(twin, world)]
        assert {form_of(op.exchange, n, world) for n in words} == set(op.exchange.forms)
        assert max(words) > op.exchange.forms[-1].blocks[0][0] or op.exchange.rowwise


def test_the_twin_has_smaller_blocks_everywhere():
    """Of a cyclic layout: in the sizes of tensors as in launches, buffers and flags, and several on each rank."""
    text = (ROOT / "specs" / "zigzag_gather.chunk").read_text(encoding="utf-8").replace("zigzag(sp)", "cyclic(sp, 128)")
    twin = shrink(schedule_of(text), 4)
    assert {layout.block for layout in walk(twin, Cyclic)} == {LONG_BLOCK}
    assert all(r.high >= 2 * LONG_BLOCK for r in twin.ranges)


def test_the_gates_of_a_twin_let_calls_through():
    """What is verified is the fused code, also where the library is predicted to be faster."""
    shipped = schedule_of(
        "mesh tp[4] over nvlink\ndim M = 1..1024\ntensor x : bf16[M @ tp, 512]\ntensor w : bf16[512 @ tp, 512]\n"
        "op f(x, w) -> y { y = all_gather(x) @ w.T with { fuse_from = never } }\n"
    )
    never, some = FuseFrom(None), FuseFrom(512, "M")
    gates = {2: FuseFrom(2, "M"), 4: FuseFrom(0), 1: FuseFrom(0)}
    for world, opened in gates.items():
        op = replace(shipped.ops[0], gate=Gate(never, "nccl", ((2, some), (4, never))))
        assert shrink(replace(shipped, ops=(op,)), world).ops[0].gate == Gate(opened, "nccl")
    assert shrink(shipped, 2).ops[0].gate == Gate(FuseFrom(0), "nccl")
    for captured, eager, kept in (
        (some, never, Gate(FuseFrom(2, "M"), "nccl", eager=Gate(never, "nccl"))),
        (never, some, Gate(never, "nccl", eager=Gate(FuseFrom(2, "M"), "nccl"))),
        (never, never, Gate(FuseFrom(0), "nccl")),
    ):
        op = replace(shipped.ops[0], gate=Gate(captured, "nccl", eager=Gate(eager, "nccl", ((2, eager),))))
        assert shrink(replace(shipped, ops=(op,)), 2).ops[0].gate == kept


@pytest.mark.parametrize("most, block, rows", [(64, 64, 64), (256, TILE, 2 * TILE), (16384, TILE, None)])
def test_a_users_kernel_goes_through_no_more_row_blocks_than_the_spec_allows(most, block, rows):
    """What is known of it, such as its order, was found with so many. A tile of 128 rows may hold them all."""
    path = ROOT / "specs" / "user_gemm.chunk"
    text = path.read_text(encoding="utf-8").replace("dim M = 1..16384", f"dim M = 1..{most}")
    twin = shrink(schedule_of(text, str(path)), 2)
    body = twin.ops[0].launches[0].body
    assert body.block == block and (rows is None or twin.ranges[0].high == rows)
    assert dict(body.constants)["BM"] == (128 if most == 64 else TILE)


UNMASKED = """import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + cols
    tl.store(y + at, 2 * tl.load(x + at%s)%s)
"""


@pytest.mark.parametrize("mask, columns", [("", 2 * TILE), (", mask=cols < n", 24)])
def test_a_kernel_without_masks_gets_whole_blocks(tmp_path, mask, columns):
    """Its columns are whole blocks in every call; of one with masks the twin has ragged ones."""
    (tmp_path / "twice.py").write_text(UNMASKED % (mask, mask), encoding="utf-8")
    text = f"""mesh tp[2] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 32]
kernel k(X) -> Y = "twice.py" : twice {{
    X = x : [m, n]
    Y = y : [m, n]
    arg n = n
    grid = m, cdiv(n, BLOCK)
    const BLOCK = {TILE}
}}
op f(x) -> y {{ y = k(all_gather(x)) with {{ chunk = 24 along M, via = copy_engine }} }}
"""
    launch = shrink(schedule_of(text, str(tmp_path / "a.chunk")), 2).ops[0].launches[0]
    assert launch.cols.size == columns
