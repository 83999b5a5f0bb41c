"""Which launches an op becomes, what is refused, and that names never meet."""

import ast
import keyword
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chunkdsl.runtime
from chunkdsl.lower.reserved import RESERVED
from chunkdsl.pipeline import check_source, prove
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

HEAD = """mesh tp[2] over nvlink
dim M = 0..40
dim H = 64
dim F = 64
tensor x : bf16[M @ tp, H]
tensor z : bf16[M @ tp, H]
tensor r : bf16[M, H]
tensor w : bf16[F @ tp, H]
tensor v : bf16[F @ tp, H]
tensor a : bf16[M, F @ tp]
tensor c : bf16[H, F @ tp]
tensor p : bf16[M, H] sum tp
tensor q : bf16[M, H] sum tp
tensor b : bf16[H]
tensor s : f32[]
tensor e : bf16[2, M @ tp, H]
tensor k : bf16[2, F @ tp, H]
tensor k0 : bf16[F @ tp, H]
tensor f_x_gathered : bf16[F @ tp, H]
"""


def checked(text):
    found = check_source(Source("t.chunk", HEAD + text + "\n"))
    if not found.report.failed:
        prove(found, (1, 2), (1, 2))
    return found


def launches(text):
    """(kernel, space, where its value goes) of the one op, which is proven and whose module compiles."""
    found = checked(text)
    assert found.report.diagnostics == () and found.proven == (1, 2)
    compile(render_module(found.schedule, found.proven), "t.py", "exec")
    return [(n.name, n.space, n.destination.buffer) for op in found.schedule.ops for n in op.launches]


# ---- what is fused


@pytest.mark.parametrize("text, expected", [
    ("op f(x) -> y { y = all_gather(x) }", [("f_y", "all", "y")]),
    ("op f(p) -> y { y = reduce_scatter(p, M) }", [("f_y_partial", "all", "f_y_stage"), ("f_y_sum", "own", "y")]),
    ("op f(p) -> y { y = all_reduce(p) }",
     [("f_y_partial", "all", "f_y_stage"), ("f_y_sum", "own", "f_y_total"), ("f_y_out", "all", "y")]),
    ("op f(p) -> y { y = all_reduce(p) with { algorithm = one_shot, order = arrival } }",
     [("f_y_partial", "whole", "f_y_stage"), ("f_y_sum", "whole", "y")]),
    ("op f(p, b) -> y { y = relu(reduce_scatter(p, M) + b) }",
     [("f_y_partial", "all", "f_y_stage"), ("f_y_sum", "own", "y")]),
    ("op f(p, q) -> y { y = reduce_scatter(p + q, M) }",
     [("f_y_partial", "all", "f_y_stage"), ("f_y_sum", "own", "y")]),
    ("op f(x, z) -> y { y = x * z }", [("f_y", "own", "y")]),                      # local ops need no transfer
    ("op f(r, w) -> y { y = r @ w.T }", [("f_y", "whole", "y")]),
    ("op f(x, s) -> y { y = all_gather(x) * s }", [("f_y", "all", "y")]),
    ("op f(x, k) -> y { g = all_gather(x)  y = swiglu(g @ k[0].T, g @ k[1].T) }", [("f_y", "all", "y")]),
    ("op f(x, w, v) -> y { y = all_gather(x) @ w.T + (all_gather(x) @ v.T) }", [("f_y", "all", "y")]),
])  # fmt: skip
def test_launches_of_a_statement(text, expected):
    assert launches(text) == expected


@pytest.mark.parametrize("text, expected", [
    ("op f(x, w) -> y { h = relu(x)  y = all_gather(h) @ w.T }", [("f_h", "own", "f_h"), ("f_y", "all", "y")]),
    ("op f(x, z, w) -> y { y = all_gather(x + z) @ w.T }",
     [("f_y_x_shard", "own", "f_y_x_shard"), ("f_y", "all", "y")]),
    ("op f(a, c) -> y { y = all_gather(reduce_scatter(a @ c.T, M)) }",
     [("f_y_x_shard_partial", "all", "f_y_x_shard_stage"), ("f_y_x_shard_sum", "own", "f_y_x_shard"),
      ("f_y", "all", "y")]),
    ("op f(x, w, c) -> y { h = gelu(all_gather(x) @ w.T)  y = reduce_scatter(h @ c.T, M) }",
     [("f_h", "all", "f_h"), ("f_y_partial", "all", "f_y_stage"), ("f_y_sum", "own", "y")]),
])  # fmt: skip
def test_a_value_that_others_read_is_kept_in_a_buffer(text, expected):
    assert launches(text) == expected


def transfers(text):
    found = checked(text)
    return [m.name for n in found.schedule.ops[0].launches for m in n.moves]


def test_a_gather_used_twice_travels_once():
    one = "op f(x, w, v) -> y, t { g = all_gather(x)  y = g @ w.T  t = g @ v.T }"
    two = "op f(x, w, v) -> y, t { y = all_gather(x) @ w.T  t = all_gather(x) @ v.T }"
    for text in (one, two):
        assert launches(text) == [("f_y", "all", "y"), ("f_t", "all", "t")]
        assert transfers(text) == ["f_x_gathered_move"]


@pytest.mark.parametrize("text, last", [
    ("op f(x, w) -> y, t { y = all_gather(x) @ w.T  t = y }", ("f_t", "whole", "t")),
    ("op f(x, w) -> y, g { g = all_gather(x)  y = g @ w.T }", ("f_y", "all", "y")),
    ("op f(x) -> y { g = all_gather(x)  y = g }", ("f_y", "all", "y")),
    ("op f(p) -> y, t { y = reduce_scatter(p, M)  t = y }", ("f_t", "own", "t")),
])  # fmt: skip
def test_every_result_is_written_though_it_be_another_name(text, last):
    found = launches(text)
    assert found[-1] == last
    results = text[text.index("->") + 3 : text.index(" {")].split(", ")
    assert set(results) <= {buffer for _, _, buffer in found}


# ---- what is refused

PRODUCTS = "more than two products in a statement, or products with different left operands"


@pytest.mark.parametrize("text, what", [
    ("op f(x, z) -> y { y = all_gather(x) + all_gather(z) }", "two gathers in one statement"),
    ("op f(x, w, v) -> y { g = all_gather(x)  y = (g @ w.T) + (g @ v.T) + (g @ v.T) }", PRODUCTS),
    ("op f(x, r, w, v) -> y { y = (all_gather(x) @ w.T) + (r @ v.T) }", PRODUCTS),
    ("op f(z, x) -> y { y = z.T @ x + z.T @ x }", "a product over rows beside another product in one statement"),
    ("op f(e) -> y { y = all_gather(e) }", "gathering along a dimension that is not the rows of a matrix"),
    ("op f(e) -> y { y = relu(e) }", "a pointwise operand of more than two dimensions"),
    ("op f(p, q) -> y { y = reduce_scatter(p, M) + reduce_scatter(q, M) }", "two reductions in one statement"),
    ("op f(p, x) -> y { y = all_reduce(p) + all_gather(x) }",
     "a reduction beside a product or a gather in one statement"),
    ("op f(r, w) -> y { y = r @ relu(w).T }", "a right operand that is computed in place"),
    ("op f(x, w, v) -> y { g = all_gather(x)\n"
     " y = swiglu((g @ w.T with { tile = 64x64x32 }), (g @ v.T with { tile = 64x64x64 })) }",
     "products of one statement with different tiles"),
    ("op f(x, w, v) -> y, t { y = all_gather(x) @ w.T with { route = ring }\n t = all_gather(x) @ v.T }",
     "two gathers of one tensor with different policies"),
])  # fmt: skip
def test_refusals(text, what):
    found = checked(text)
    (d,) = found.report.diagnostics
    assert (d.code, d.message) == ("CD603", f"not built yet: {what}") and d.help
    assert found.schedule is None or found.schedule.ops == ()


# ---- names


def module_names():
    """Names of functions that the modules of runtime/ define."""
    for file in Path(chunkdsl.runtime.__file__).parent.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield node.name


def test_helpers_of_a_module_are_reserved():
    assert set(module_names()) == RESERVED
    kernels = {n for n in RESERVED if "_" in n.strip("_")}
    assert kernels and not any(keyword.iskeyword(n) for n in kernels)


@pytest.mark.parametrize("name", sorted(n for n in RESERVED if "_" in n))
def test_a_kernel_never_takes_the_name_of_a_helper(name):
    op, target = name.split("_", 1)
    found = check_source(Source("t.chunk", HEAD + f"op {op}(x) -> {target} {{ {target} = all_gather(x) }}\n"))
    if found.report.failed:  # a keyword of the language
        assert {d.code[:3] for d in found.report.diagnostics} <= {"CD1", "CD2"}
    else:
        assert [n.name for n in found.schedule.ops[0].launches] == [f"{name}_"]


@pytest.mark.parametrize("text", [
    "op f(x, p) -> y, t { y_stage = relu(x)  t = relu(y_stage)  y = reduce_scatter(p, M) }",
    "op f(x, p) -> y, t { y = reduce_scatter(p, M)  y_stage = relu(x)  t = relu(y_stage) }",
    "op f(x, p) -> y, t { y = all_reduce(p)  y_total = relu(x)  t = relu(y_total) }",
    "op f(x, p) -> y, y_sum { y_sum = relu(x)  y = reduce_scatter(p, M) }",
    "op f(x, w) -> y, f_h { h = relu(x)  f_h = relu(h)  y = all_gather(h) @ w.T }",
    "op f(x, f_x_gathered) -> y { y = all_gather(x) @ f_x_gathered.T }",
    "op f(x, k, k0) -> y { g = all_gather(x)  y = swiglu(g @ k[0].T, g @ k0.T) }",
    "op f(p) -> y { y = all_reduce(p) }\nop f_y(x) -> out { out = relu(x) }",
])  # fmt: skip
def test_names_that_would_meet_are_told_apart(text):
    found = checked(text)
    names = [name for name, _, _ in launches(text)]
    assert len(names) == len(set(names))
    for op in found.schedule.ops:
        kept = [x.name for x in (*op.parameters, *op.results, *op.buffers, *op.flags, *op.counters)]
        assert len(kept) == len(set(kept))
        for n in op.launches:
            operands = [o for o in (n.a, *(p.b for p in n.products), *n.operands) if o]
            assert len({o.name for o in operands}) == len({(o.source, o.pick, o.role) for o in operands})


def test_two_ops_whose_statements_would_have_one_kernel_are_refused():
    found = checked("op f(x) -> g_y { g_y = all_gather(x) }\nop f_g(x) -> y { y = all_gather(x) }")
    assert {d.code for d in found.report.diagnostics} == {"CD603"}


# ---- any small spec

SIZES = st.sampled_from([8, 16, 24, 40, 64, 72])


@st.composite
def specs(draw):
    """A spec of one op with sizes and policies at random, right or wrong."""
    low = draw(st.integers(0, 3))
    m, h, f = f"{low}..{low + draw(st.integers(1, 90))}", draw(SIZES), draw(SIZES)
    if draw(st.booleans()):
        m += f" step {draw(st.integers(1, 5))}"
    dtype = draw(st.sampled_from(["bf16", "f16", "f32"]))
    key = {
        "route": ["direct", "swizzle", "ring"], "via": ["copy_engine", "tma", "ldst"], "side": ["push", "pull"],
        "place": ["own_sms(1)", "own_sms(3)", "co_located"], "buffers": [1, 2],
        "order": ["arrival", "local_first", "interleaved"], "add": ["behind", "in_tiles"],
        "chunk": ["3 per shard", "7 along M", "1 KiB", "1 per shard", "64 along M"],
        "tile": ["16x16x16", "32x64x32", "64x16x16"], "fuse_from": ["always", "never", "9 along M"],
    }  # fmt: skip
    picked = draw(st.lists(st.sampled_from(list(key)), unique=True, max_size=6))
    policy = ", ".join(f"{k} = {draw(st.sampled_from(key[k]))}" for k in picked)
    body = draw(st.sampled_from([
        "all_gather(x) @ w.T", "relu(all_gather(x) @ w.T + b)", "reduce_scatter(a @ c.T, M)", "all_reduce(a @ c.T)",
        "reduce_scatter((all_gather(x) @ w.T) @ c.T, M) + x", "gelu(all_reduce(a @ c.T)) * 2", "all_gather(x + x)",
    ]))  # fmt: skip
    return f"""mesh tp[{draw(st.integers(1, 4))}] over nvlink
dim M = {m}
dim H = {h}
dim F = {f}
tensor x : {dtype}[M @ tp, H]
tensor w : {dtype}[F @ tp, H]
tensor b : {dtype}[F @ tp]
tensor a : {dtype}[M, F @ tp]
tensor c : {dtype}[H, F @ tp]
op f(x, w, b, a, c) -> y {{ y = {body} with {{ {policy} }} }}
"""


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs(), st.integers(1, 5))
def test_any_spec_is_proven_or_refused_by_a_code(text, world):
    found = check_source(Source("t.chunk", text))
    if not found.report.failed:
        prove(found, (world,), (world,))
    codes = {d.code for d in found.report.diagnostics}
    assert all(code.startswith(("CD2", "CD5", "CD6")) for code in codes), (text, codes)  # no CD3, no CD4
    assert found.proven == (world,) or codes
