"""What kernels of specialised warps compute, tile by tile in Python (gluon_values.py), bit by bit: from where, into
what, and which addends, in wide tiles and in narrow ones."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from gluon_in_python import within
from gluon_values import results_of

from chunkdsl import pipeline
from chunkdsl.plan.tile_kernels import warp_tiles
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

DEPTH, COLUMNS = 544, 328  # of a rank: nine steps, the last half a box; two tiles side by side or three, the last cut
SPEC = f"""mesh tp[2] over nvlink
dim M = 1..2048
dim F = {2 * DEPTH}
dim N = {COLUMNS}
dim D = {DEPTH}
dim G = {2 * COLUMNS}
tensor a : bf16[M, F @ tp]
tensor v : bf16[N, F @ tp]
tensor t : bf16[F @ tp, N]
tensor r : bf16[M @ tp, N]
tensor x : f16[M @ tp, D]
tensor w : f16[G @ tp, D]
tensor b : f16[G @ tp]
policy read {{ tile = 128x256x64, chunk = 100 along M, via = copy_engine }}
policy sent {{ tile = 128x256x64, chunk = 100 along M, place = co_located, buffers = 2 }}
op stays(a, v, r) -> y {{ y = reduce_scatter(a @ v.T, M) + r with sent {{ add = in_tiles }} }}
op travels(a, v) -> y {{ y = all_reduce(a @ v.T) with sent {{ add = in_tiles, algorithm = two_shot }} }}
op behind(a, t) -> y {{ y = reduce_scatter(a @ t, M) with sent }}
op every(a, t) -> y {{ y = all_reduce(a @ t) with sent {{ algorithm = one_shot }} }}
op up(x, w, b) -> y {{ y = relu(all_gather(x) @ w.T + b) with read }}
"""
WIDE, NARROW = (shape.columns for shape in warp_tiles().shapes)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(text of the module, its class)."""
    path = tmp_path_factory.mktemp("values") / "values.py"
    path.write_text(render_module(pipeline.check_source(Source("values.chunk", SPEC)).schedule, (2,)))
    spec = importlib.util.spec_from_file_location("values", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return path.read_text(), module.Values


def numbers(seed, *shape, dtype=torch.bfloat16, most=3):
    """Whole numbers, small enough that f32 holds their products' sums, and large enough for 16 bits to round those."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).to(dtype)


def call_of(name, rows):
    """(inputs, results) by rank."""
    each = -(-rows // 2)
    mine = slice(0, each), slice(each, rows)
    if name == "up":
        x, w, b = (numbers(i, *shape, dtype=torch.float16) for i, shape in
                   enumerate(((rows, DEPTH), (2 * COLUMNS, DEPTH), (2 * COLUMNS,))))  # fmt: skip
        y = (x.float() @ w.float().T + 16 * b.float()).clamp(min=0).half()
        here = slice(0, COLUMNS), slice(COLUMNS, 2 * COLUMNS)
        return [[x[m], w[c], 16 * b[c]] for m, c in zip(mine, here, strict=True)], [y[:, c] for c in here]
    a, v = ([numbers(10 * i + r, n, DEPTH) for r in range(2)] for i, n in ((1, rows), (2, COLUMNS)))
    rest = numbers(7, rows, COLUMNS, most=64)
    addends = [(left.float() @ right.float().T).bfloat16().float() for left, right in zip(a, v, strict=True)]
    y = (addends[0] + addends[1] + (rest.float() if name == "stays" else 0.0)).bfloat16()
    given = [[a[r], v[r] if name in ("stays", "travels") else v[r].T.contiguous()] for r in range(2)]
    if name == "stays":
        given = [[*g, rest[m]] for g, m in zip(given, mine, strict=True)]
    return given, [y, y] if name in ("travels", "every") else [y[m] for m in mine]


def right(built, name, rows, *calls):
    """Are the results of all ranks in all calls what they should be, every bit?"""
    text, cls = built
    inputs, expected = call_of(name, rows)
    found = results_of(cls, text, name, {"M": rows}, calls, inputs)
    return all(torch.equal(a, b) for a, b in zip(found, expected * len(calls), strict=True))


OPS = ("stays", "travels", "behind", "every", "up")


@pytest.mark.parametrize("columns", [WIDE, NARROW])
@pytest.mark.parametrize("rows", [1, 299])
@pytest.mark.parametrize("name", OPS)
def test_all_bits_are_right_in_tiles_of_either_width(built, name, rows, columns):
    """Of 1 row the second rank has none; of 299 the first has a tile's and 22, the second a row less."""
    assert right(built, name, rows, (columns, columns))


@pytest.mark.parametrize("name", OPS)
def test_ranks_and_calls_need_not_agree_on_the_width(built, name):
    """Each call leaves counters and tickets as it found them, whatever tiles it took; 65 and 64 rows."""
    assert right(built, name, 129, (WIDE, NARROW), (NARROW, NARROW), (NARROW, WIDE))


def test_a_call_that_leaves_its_tickets_is_found(built):
    mutant = within("up_y_load", "    leave(tickets)", "    pass")(built[0]), built[1]
    assert right(mutant, "up", 129, (NARROW, NARROW))
    assert not right(mutant, "up", 129, (NARROW, NARROW), (WIDE, NARROW))


LOAD, MULTIPLY, KEEP, ADD, HAND = (
    f"{{}}_y_partial_{what}" for what in ("load", "multiply", "keep", "add_piece", "hand_sum")
)
QUARTER, PLACE, ACROSS = "(BN // 4)", "col = column * BN", "columns = tl.maximum(tl.cdiv(n, BN), 1)"
OF_NARROW = {  # op, function, text, other text; right in wide tiles
    "addends come from the plan's quarters": ("stays", KEEP, f"col + i * {QUARTER}, slot", "col + i * 64, slot"),
    "and so do those that a multiplier adds": ("stays", HAND, f"PART * {QUARTER}", "PART * 64"),
    "those of sums that travel do": ("travels", KEEP, f"col + i * {QUARTER}, slot", "col + i * 64, slot"),
    "one quarter is stored where the plan's begins": ("behind", KEEP, f"1 * {QUARTER}", "1 * 64"),
    "a quarter of a sum is": ("travels", KEEP, f"[0, col + i * {QUARTER}]", "[0, col + i * 64]"),
    "tiles are stored at the plan's columns": ("every", KEEP, PLACE, "col = column * 256"),
    "right operands are loaded from them": ("behind", LOAD, PLACE, "col = column * 256"),
    "the last tile is added up at them": ("stays", MULTIPLY, PLACE, "col = column * 256"),
    "tickets are the plan's where tiles are stored": ("up", "up_y_keep", ACROSS, "columns = tl.cdiv(n, 256)"),
    "and where the rest of the statement is": ("up", "up_y_rest", ACROSS, "columns = tl.cdiv(n, 256)"),
    "the rest reads the plan's quarters": ("up", "up_y_rest", f"PART * {QUARTER}", "PART * 64"),
}  # fmt: skip


@pytest.mark.parametrize("mutant", OF_NARROW)
def test_what_takes_a_narrow_tile_for_a_wide_one_is_found(built, mutant):
    name, function, old, new = OF_NARROW[mutant]
    faulty = within(function.format(name), old, new)(built[0]), built[1]
    assert right(faulty, name, 129, (WIDE, WIDE))
    assert not right(faulty, name, 129, (NARROW, NARROW))


MUTANTS = {  # op, rows, function, text, other text
    "an addend comes from the wrong rank": ("stays", 129, ADD, "source.to(gl.int64) * stride", "owner * stride"),
    "addends of all strips are those of the first": ("travels", 299, ADD, "+ strip * STRIP", ""),
    "addends of both halves are those of the upper": ("stays", 299, ADD, "SIDE * (BM // 2) + ", ""),
    "the own addend is left out": ("travels", 129, ADD, "if source == rank:", "if source > W:"),
    "sums are made in 16 bits": ("stays", 129, ADD, "total += part.to(gl.float32)",
                                 "total = (total + part.to(gl.float32)).to(tl.bfloat16).to(gl.float32)"),
    "halves are stored over each other": ("behind", 299, KEEP, "(place + SIDE * (BM // 2))", "place"),
    "rows beyond a shard are stored too": ("stays", 299, KEEP, "shape=[below.to(tl.int32), n]", "shape=[BM, n]"),
    "quarters are every fourth column": ("behind", 129, "left_right", "reshape(rows, 2, cols // 2).permute(0, 2, 1)",
                                         "reshape(rows, cols // 2, 2)"),
    "one box is not announced": ("behind", 129, LOAD, "(BM + BN)", "BM"),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_computes_something_else_is_found(built, mutant):
    name, rows, function, old, new = MUTANTS[mutant]
    faulty = within(function.format(name), old, new)(built[0]), built[1]
    try:
        found = not right(faulty, name, rows, (NARROW, NARROW))
    except (IndexError, ValueError):
        found = True
    assert found
