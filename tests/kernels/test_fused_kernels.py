"""Users' kernels on simulated ranks: bits of `exact` (the untouched kernel), the whole kernel, conformance; mutants."""

import ast
from pathlib import Path

import pytest
from kernel_specs import CALLS, COPY, HEAD, KERNELS, ROOT, SEVERAL, WIDER, checked, gathered, reduced, rows

from chunkdsl.check.worlds import prove_op
from chunkdsl.ir.meshes import ranks_of
from chunkdsl.lower.kernel_tiles import KernelTiles
from chunkdsl.render.module import render_module
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.twin import shrink
from chunkdsl.verify.verify import load

SPECS = {f"gathered {name}": gathered(name) for name in KERNELS}
SPECS |= {f"several gathered, {name}": HEAD + text for name, text in SEVERAL.items()}
SPECS |= {f"reduced {name}": reduced(name) for name in ("matmul_persistent",)}
SPECS["programs that store nothing"] = HEAD + WIDER
SPECS["programs that store nothing, sent"] = reduced("matmul_2d").replace(", cdiv(n, BN)", ", 2 * cdiv(n, BN)")
SPECS["arrived by all_to_all"] = (
    HEAD + "tensor z : bf16[M, K @ tp]\n" + KERNELS["rms_norm"]
    + "op f_op(z, g) -> y { y = f(all_to_all(z, K -> M), g) with { chunk = 24 along M } }"
)  # fmt: skip
DEALT = (
    HEAD + KERNELS["matmul_2d"] + "tensor wk : bf16[K @ tp, N]\nop f_op(x, wk) -> y { "
    "y = reduce_scatter(f((all_to_all(x, M -> K) with { chunk = 24 along M, via = copy_engine }), wk), M) "
    "with { chunk = 24 along M, side = pull } }"
)
SPECS["columns dealt by all_to_all"] = DEALT
SPECS["what a heuristic would choose"] = (
    HEAD + rows("scaled", args="    arg n_cols = n\n    arg alpha = 0.5\n", grid="m, cdiv(n, BLOCK)",
                block='32, EVEN = true, KIND = "relu"') + CALLS["softmax"].format(policy=COPY)
)  # fmt: skip
LAYOUT = "gathered from a layout, reduced into one"
SPECS[LAYOUT] = (
    HEAD.replace("M @ tp", "M @ zigzag(tp)") + KERNELS["matmul_2d"] + "tensor u : bf16[N @ tp, K]\n"
    "op f_op(x, w, u) -> y { h = f(all_gather(x), w) y = reduce_scatter(f(gelu(h), u), M @ zigzag(tp)) + x }"
)
SPECS["pushed"] = gathered("matmul_2d", "chunk = 24 along M, via = ldst, side = push, buffers = 2")
SPECS["ring"] = reduced("matmul_2d", "chunk = 24 along M, route = ring")
ONE_SHOT = "op f_op(a, v) -> y { y = all_reduce(f(a, v)) with { algorithm = one_shot } }"
SPECS["one shot"] = HEAD + KERNELS["matmul_2d"] + ONE_SHOT
SPECS["both"] = (
    HEAD + KERNELS["matmul_2d"] + "tensor u : bf16[N @ tp, K]\n"
    "op f_op(x, w, u) -> y { h = f(all_gather(x), w) y = reduce_scatter(f(gelu(h), u), M) + x }"
)
BASE = gathered("matmul_2d")
MUTANTS = {
    "no wait": ("if source != rank:\n                word", "if source == W:\n                word"),
    "wrong rows": ("BM - 1) // BM + begun", "BM - 1) // BM + begun * 0"),
    "wrong program": ("first * width + b * height + within", "first * width + b * height + (within + 1) % height"),
    "waits too much": ("stop = last + 1", "stop = shard * W"),
}
SENT = {
    "signals early": ("tiles_of_chunk.to(tl.int32)", "(tiles_of_chunk - 1).to(tl.int32)"),
    "counts one column": ("begins // BM + 1) * many", "begins // BM + 1)"),
    "wrong owner": ('out_arrived, to) + rank', 'out_arrived, (to + 1) % W) + rank'),
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def failures(text, folder: Path, world, change=None, dims=(53, 1)):
    return failures_of(checked(text), folder, world, change, dims)


def failures_of(made, folder: Path, world, change=None, dims=(53, 1)):
    assert [d.message for d in made.report.diagnostics] == []
    small = shrink(made.schedule, world)
    module = render_module(small, (world,))
    if change:
        assert change[0] in module
        module = module.replace(*change)
    loaded, op = load(module, folder, "twin"), small.ops[0]
    calls = [{"M": min(m * ranks_of(world), small.ranges[0].high)} for m in dims]
    rows = run_op(loaded, "Zoo", small, op, made.program.ops[0], world, 0, calls, pointers=False)
    return [f"{r.check}: {r.detail}" for r in rows if not r.passed]


@pytest.mark.parametrize("name", SPECS)
def test_a_users_kernel_fused(name, tmp_path):
    assert failures(SPECS[name], tmp_path, 2, dims=(37, 1)) == []


@pytest.mark.parametrize("text, tickets", [
    (BASE, False),
    (gathered("matmul_2d", "chunk = 24 along M, via = ldst, place = own_sms(2)"), True),
    (reduced("matmul_2d"), True),
])  # fmt: skip
def test_programs_take_tickets_where_others_wait_for_what_they_do(text, tickets):
    module = render_module(checked(text).schedule, (2,))
    body = module[module.index("\ndef f_op_") :]
    assert ("tile = take(tickets)" in body, "each=True" in body) == (tickets, not tickets)


def test_rows_of_a_layout_that_no_launch_puts_in_order_are_refused_by_the_proof(monkeypatch):
    monkeypatch.setattr(KernelTiles, "_comes_in_order", lambda self, value, arg: arg.kind == "all_gather")
    small = shrink(checked(SPECS[LAYOUT]).schedule, 2)
    assert "CD308" in {r.code for r in prove_op(small, small.ops[0], 2).refutations}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_gathered_side_is_caught(name, tmp_path):
    assert failures(BASE, tmp_path, 2, MUTANTS[name], (53,))


def test_tiles_wait_for_dealt_columns_chunk_by_chunk(tmp_path):
    launch = checked(DEALT).schedule.ops[0].launches[0]
    assert launch.body and launch.chunk_flags and [m.kind for m in launch.moves] == ["deal"]
    assert failures(DEALT, tmp_path, 2, MUTANTS["no wait"], (53,))


@pytest.mark.parametrize("name", SENT)
def test_a_mutant_of_the_sent_side_is_caught(name, tmp_path):
    assert failures(reduced("matmul_2d"), tmp_path, 2, SENT[name])


@pytest.mark.parametrize("name, change", [
    ("add_norm", ("f_op_r_gathered_arrived + word, epoch", "f_op_x_gathered_arrived + word, epoch")),
    ("attention_kv", ("f_op_c_gathered_arrived, f_op_e_gathered_arrived,", "f_op_c_gathered_arrived,")),
])  # fmt: skip
def test_a_wait_for_one_of_two_gathered_arguments_is_not_enough(name, change, tmp_path):
    assert failures(HEAD + SEVERAL[name], tmp_path, 2, change, (53,))


@pytest.mark.parametrize("old, new, what", [
    ("tensor r : bf16[M @ tp, K]", "tensor r : f32[M @ tp, K]", "chunks have different rows"),
    ("via = copy_engine", "via = ldst, place = own_sms(1)", "not by copy engine"),
])  # fmt: skip
def test_gathered_arguments_that_cannot_travel_together(old, new, what):
    text = (HEAD + SEVERAL["add_norm"]).replace("chunk = 24 along M", "chunk = 8 KiB").replace(old, new)
    assert any(what in d.message for d in checked(text).report.diagnostics)


@pytest.mark.parametrize("name", ["pushed", "ring"])
def test_what_carries_chunks_assigns_no_parameter_of_the_launch(name):
    """A name with one type before a loop and another one in it does not compile, though it runs in the interpreter."""
    module = ast.parse(render_module(checked(SPECS[name]).schedule, (2,)))
    moves = [n for n in module.body if isinstance(n, ast.FunctionDef) and n.name.endswith("_move")]
    assert moves
    for node in moves:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        assert stored & {a.arg for a in node.args.args} == set()
