"""Lowering a file: what comes out, what is left out, what stays silent, and how the work grows."""

import subprocess
import sys

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows, FuseFrom, Place, Policy
from chunkdsl.ir.types import DType, Partial, Replicate, Shard
from chunkdsl.lower.program import lower
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

HEAD = """mesh tp[4] over nvlink
dim M = 1..4096
dim H = 256
dim F = 512
tensor x  : bf16[M @ tp, H]
tensor w  : bf16[F @ tp, H]
tensor w2 : bf16[H, F @ tp]
tensor w13 : bf16[2, F @ tp, H]
tensor p  : bf16[M, H] sum tp
tensor q  : bf16[M, H] sum tp
tensor r  : bf16[M, H]
tensor b  : bf16[H]
tensor c  : f32[H]
policy gather { chunk = 512 along M, route = swizzle, via = copy_engine }
"""


def lowered(text):
    source = Source("t.chunk", text)
    report = Report(source)
    return lower(parse(source, report), source, report), report


def values(op, kind):
    found, seen, stack = [], set(), [s.value for s in op.statements]
    while stack:
        v = stack.pop()
        if id(v) not in seen:
            seen.add(id(v))
            found += [v] * (v.kind == kind)
            stack += v.args
    return found


def only_op(text):
    program, report = lowered(HEAD + text)
    assert report.diagnostics == ()
    (op,) = program.ops
    return op


def test_types_and_attributes():
    op = only_op("op f(x, w, w2) -> y { h = gelu(all_gather(x) @ w.T)\n y = reduce_scatter(h @ w2.T, M) }\n")
    (gather,), (scatter,) = values(op, "all_gather"), values(op, "reduce_scatter")
    assert gather.attrs == {"axis": 0, "dim": 0} and gather.type.placements == (Replicate(),)
    assert scatter.attrs == {"axis": 0, "dim": 0} and scatter.type.placements == (Shard(0),)
    assert scatter.args[0].type.placements == (Partial(),)
    assert [v.type.placements for v in values(op, "transpose")] == [(Shard(0),), (Shard(1),)]
    assert op.results[0][1] is op.statements[1].value
    assert [s.target for s in op.statements] == ["h", "y"]


def test_a_name_is_one_value():
    op = only_op("op f(x, w13) -> y { g = all_gather(x)\n y = swiglu(g @ w13[0].T, g @ w13[1].T) }\n")
    assert len(values(op, "all_gather")) == 1
    assert len(values(op, "param")) == 2
    assert sorted(v.attrs["index"] for v in values(op, "pick")) == [0, 1]


def test_a_transposed_left_operand():
    op = only_op("tensor dy : bf16[M @ tp, F]\nop f(dy, x) -> dw { dw = dy.T @ x }\n")
    assert op.results[0][1].type.placements == (Partial(),)


def test_an_op_with_an_error_costs_that_op_alone():
    program, report = lowered(HEAD + "op f(x, r) -> y { y = x + r }\nop g(x) -> y { y = all_gather(x) }\n")
    assert [d.code for d in report.diagnostics] == ["CD211"]
    assert [op.name for op in program.ops] == ["g"]


def test_a_warning_costs_no_op():
    program, report = lowered(HEAD + "op f(p) -> y { y = all_reduce(cast(p, f16)) }\n")
    assert [d.code for d in report.diagnostics] == ["CD214"]
    assert [op.name for op in program.ops] == ["f"]


def test_declarations_that_do_not_parse_are_not_unknown():
    text = HEAD + "tensor z : bf16[M @ tp, 32\ndim Q = 1..\ntensr s : f32[]\npolicy fast { route = }\n"
    text += "op f(x, z, s) -> y { y = all_gather(z) * s with fast }\n"
    text += "tensor v : bf16[Q]\nop g(x, n) -> y { y = n * z }\n"
    program, report = lowered(text)
    assert [d.code for d in report.diagnostics if d.code > "CD2"] == ["CD240"]  # n
    assert program.ops == ()


@pytest.mark.parametrize("mesh", ["mesh tp[4\n", "mseh tp[4]\n", "mesh tp[]\n"])
def test_a_mesh_that_does_not_parse_is_said_once(mesh):
    program, report = lowered(HEAD.replace("mesh tp[4] over nvlink\n", mesh) + "op f(x) -> y { y = all_gather(x) }\n")
    assert program is None
    assert [d.code[:3] for d in report.diagnostics] == ["CD1"]


def test_nothing_usable_and_nothing_wrong():
    assert lowered("")[0].ops == ()
    assert lowered("dim M = 4\n")[0].constants == {"M": 4}
    assert lowered("mesh a[2], b[2], c[2]\nop f(x) -> y { y = x }\n")[0] is None


def test_every_policy_value():
    op = only_op("op f(x, w) -> y { y = all_gather(x) @ w.T with { chunk = 4 MiB, tile = 128x256x64, stages = 3,"
                 " warps = 8, place = own_sms(16), fuse_from = 1024 along M, fallback = exact, buffers = 2,"
                 " fuse = required } }\n")
    (gather,), (product,) = values(op, "all_gather"), values(op, "matmul")
    assert gather.policy == Policy(chunk=ChunkBytes(4 << 20), place=Place("own_sms", 16), buffers=2, fuse="required",
                                   fuse_from=FuseFrom(1024, "M"), fallback="exact")
    assert product.policy == Policy(tile=(128, 256, 64), stages=3, warps=8, fuse="required",
                                    fuse_from=FuseFrom(1024, "M"), fallback="exact")


def test_the_parenthesis_wins_inside_and_auto_undoes():
    op = only_op("op f(x, w) -> y { y = (all_gather(x) with gather { via = tma, route = auto }) @ w.T"
                 " with { via = ldst, route = ring, order = arrival } }\n")
    (gather,) = values(op, "all_gather")
    assert gather.policy == Policy(chunk=ChunkRows(512, "M"), via="tma", order="arrival")


def test_a_chunk_goes_to_the_collective_that_moves_its_dimension():
    op = only_op("op f(x, p) -> y { y = all_gather(reduce_scatter(p, H)) with { chunk = 16 along H } }\n")
    assert values(op, "all_gather")[0].policy.chunk == ChunkRows(16, "H")
    op = only_op("op f(x, p) -> y { y = all_gather(x) + all_gather(reduce_scatter(p, H))"
                 " with { chunk = 8 along M } }\n")
    assert sorted(str(v.policy.chunk) for v in values(op, "all_gather")) == [str(ChunkRows(8, "M")), "None"]
    op = only_op("op f(p) -> y { y = all_reduce(p) with { chunk = 8 per shard, reduce = rank_order, wire = f32 } }\n")
    assert values(op, "all_reduce")[0].policy == Policy(chunk=ChunkCount(8), reduce="rank_order", wire="f32")


@pytest.mark.parametrize(("name", "policy"), [("overlap", Policy(fuse_from=FuseFrom(0))),
                                              ("unfused", Policy(fuse_from=FuseFrom(None))),
                                              ("decode", Policy(algorithm="one_shot", validity="word"))])
def test_policies_of_the_language(name, policy):
    assert values(only_op(f"op f(p) -> y {{ y = all_reduce(p) with {name} }}\n"), "all_reduce")[0].policy == policy


def test_a_users_policy_hides_one_of_the_language():
    op = only_op("policy decode { buffers = 1 }\nop f(p) -> y { y = all_reduce(p) with decode }\n")
    assert values(op, "all_reduce")[0].policy == Policy(buffers=1)


def test_policy_spans_point_at_the_pairs():
    text = HEAD + "op f(x) -> y { y = all_gather(x) with gather { via = tma } }\n"
    program, _ = lowered(text)
    policy = values(program.ops[0], "all_gather")[0].policy
    assert {k: text[s.start : s.end] for k, s in policy.spans.items()} == {
        "chunk": "chunk = 512 along M", "route": "route = swizzle", "via": "via = tma"}


def test_results_take_their_operands_dtype():
    op = only_op("tensor s : f32[]\nop f(r, s, c) -> y, z { y = r * s + 1\n z = cast(r, f32) + c }\n")
    assert [v.type.dtype for _, v in op.results] == [DType.BF16, DType.F32]


FIXES = {
    "op f(x, w) -> y { y = all_gather(x) @ w }": "all_gather(x) @ w.T }",
    "op f(r, p) -> y { y = p @ all_gather(r).T }": "p @ r.T }",
    "op f(x, w) -> y { y = x @ w.T }": "all_gather(x) @ w.T }",
    "op f(p, b) -> y { y = reduce_scatter(p + b, M) }": "y = reduce_scatter(p, M) + b }",
    "op f(p, b) -> y { y = gelu(all_reduce(b + p)) }": "gelu((b + all_reduce(p))) }",
    "op f(p, x) -> y { y = p + x }": "y = reduce_scatter(p, M) + x }",
    "op f(p) -> y { y = gelu(p) }": "gelu(all_reduce(p)) }",
    "op f(p, r) -> y { y = r / (p) }": "r / all_reduce(p) }",
    "op f(x, r) -> y { y = x + r }": "all_gather(x) + r }",
    "op f(p) -> y { y = all_gather(p) }": "all_reduce(p) }",
    "op f(x) -> y { y = all_reduce(x) }": "all_gather(x) }",
    "op f(r) -> y { y = all_reduce(r * 2) }": "(r * 2) }",
    "op f(r, c) -> y { y = r + c }": "r + cast(c, bf16) }",
    "op f(r, w2) -> y { y = r @ w2 @ w2.T.T }": None,
    "op f(w2, r) -> y { y = r @ w2.T.T.T }": None,
    "op f(x) -> y { y = all_gathr(x) }": "all_gather(x) }",
    "op f(x) -> y { y = all_gather(X) }": "all_gather(x) }",
    "op f(x) -> y { y = all_gather(x) with gatherr }": "with gather }",
    "op f(x) -> y { y = all_gather(x) with { rout = ring } }": "{ route = ring } }",
    "op f(x) -> y { y = all_gather(x) with { route = rinng } }": "{ route = ring } }",
    "tensor h : bf16[H, H]\nop f(h) -> y { y = h * 2 }": "dim H2 = H\ntensor h : bf16[H, H2]",
    "op f(x) -> y { y = cast(x, float16) }": "cast(x, f16) }",
}


@pytest.mark.parametrize("text", [t for t, mended in FIXES.items() if mended])
def test_the_first_fix_mends(text):
    whole = HEAD + text + "\n"
    _, report = lowered(whole)
    (finding,) = report.diagnostics
    mended = whole
    for edit in sorted(finding.fixes[0].edits, key=lambda e: -e.span.start):
        mended = mended[: edit.span.start] + edit.text + mended[edit.span.end :]
    assert FIXES[text] in mended
    assert lowered(mended)[1].diagnostics == ()


def test_messages_speak_of_the_declaration():
    _, report = lowered(HEAD + "op f(r, w2) -> y { y = r @ w2 @ w2.T @ r.T }\nop g(r, w2) -> y { y = (r @ w2) @ r }\n")
    text = [(d.message, d.label, [x.message for x in d.labels]) for d in report.diagnostics]
    assert text == [
        ("contracted sizes differ: F = 512 on the left, M on the right", "bf16[M, H]: M rows",
         ["bf16[M, F @ tp]: F columns", "declared as bf16[M, H]"]),
    ]


def calls_of_lowering(text):
    """Function calls, ours and Python's own, which no other process can slow down; and what was found."""
    source = Source("t", text)
    report = Report(source)
    tree, count = parse(source, report), 0

    def see(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        program = lower(tree, source, report)
    finally:
        sys.setprofile(None)
    return count, report, program


def many_items(n):
    lines = [HEAD] + [f"dim D{i} = H + {i}\ntensor t{i} : bf16[M @ tp, D{i}]" for i in range(n)]
    lines += [f"op f{i}(t{i}) -> y {{ y = all_gather(t{i}) * 2 with gather }}" for i in range(n)]
    return "\n".join(lines) + "\n"


def many_unknown_names(n):
    lines = [HEAD] + [f"tensor tensor_number_{i} : bf16[M @ tp, 8]" for i in range(n)]
    lines += [f"op f{i}(tensor_numbr_{i}) -> y {{ y = all_gather(tensor_numbr_{i}) }}" for i in range(n)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("made", "found", "most"), [(many_items, 0, 5), (many_unknown_names, 1, 8)])
def test_four_times_the_items_take_about_four_times_the_work(made, found, most):
    """A near name is looked for among more names, too; sixteen times would be a search through all for each."""
    few, _, _ = calls_of_lowering(made(80))
    many, report, program = calls_of_lowering(made(320))
    assert many < most * few, many / few
    assert len(report.diagnostics) == 320 * found and len(program.ops) == 320 * (1 - found)


def test_lowering_imports_no_torch_triton_or_numpy():
    code = "import sys, chunkdsl.lower.program; print({'torch', 'triton', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
