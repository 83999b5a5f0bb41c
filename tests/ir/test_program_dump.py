"""The dump of a typed program: complete, shared values once, the same text each time."""

from chunkdsl.diagnostics import Report
from chunkdsl.ir.dump import dump_program, type_text
from chunkdsl.ir.types import DimRef, DType, Mesh, MeshAxis, Partial, Replicate, Shard, SizeOp, TensorType
from chunkdsl.lower.program import lower
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

SPEC = """mesh tp[4] over nvlink
dim M = 1..4096 step 2
dim H = 256
dim H2 = M * 2
tensor x : bf16[M @ tp, H]
tensor w : bf16[2, 512 @ tp, H]
op f(x, w) -> y {
    g = all_gather(x) with { chunk = 512 along M, place = own_sms(4), fuse_from = 1024 along M }
    y = swiglu(g @ w[0].T, g @ w[1].T) * 0.5 with { tile = 128x256x64, fuse_from = never }
}
"""

DUMP = """mesh tp[4] over nvlink
dim M = 1..4096 step 2
dim H = 256
dim H2 = 2 * M
tensor x : bf16[M @ tp, 256]
tensor w : bf16[2, 512 @ tp, 256]
op f(x, w) -> y {
    %0 = all_gather(x, axis=0, dim=0) : bf16[M, 256] with \
{ chunk = 512 along M, place = own_sms(4), fuse_from = 1024 along M }
    g = %0
    %1 = pick(w, index=0) : bf16[512 @ tp, 256]
    %2 = transpose(%1) : bf16[256, 512 @ tp]
    %3 = matmul(%0, %2) : bf16[M, 512 @ tp] with { tile = 128x256x64, fuse_from = never }
    %4 = pick(w, index=1) : bf16[512 @ tp, 256]
    %5 = transpose(%4) : bf16[256, 512 @ tp]
    %6 = matmul(%0, %5) : bf16[M, 512 @ tp] with { tile = 128x256x64, fuse_from = never }
    %7 = swiglu(%3, %6) : bf16[M, 512 @ tp]
    %8 = mul(%7, 0.5) : bf16[M, 512 @ tp]
    y = %8
    return y = %8
}
"""


def dump():
    source = Source("t.chunk", SPEC)
    report = Report(source)
    program = lower(parse(source, report), source, report)
    assert report.diagnostics == ()
    return dump_program(program)


def test_a_whole_program():
    assert dump() == DUMP
    assert dump() == dump()


def test_types_as_the_language_writes_them():
    mesh = Mesh((MeshAxis("node", 2, None), MeshAxis("gpu", 4, None)))
    shape = (DimRef("M"), SizeOp("*", 2, DimRef("M")), 8)
    assert type_text(TensorType(DType.BF16, shape, (Shard(0), Shard(0))), mesh) == "bf16[M @ (node, gpu), 2 * M, 8]"
    assert type_text(TensorType(DType.F32, shape, (Replicate(), Partial())), mesh) == "f32[M, 2 * M, 8] sum gpu"
    assert type_text(TensorType(DType.F32, (), (Partial(), Partial())), mesh) == "f32[] sum (node, gpu)"
    assert type_text(TensorType(DType.F32, shape, (Shard(2), Replicate())), mesh, ("M", None, "H")) == (
        "f32[M, 2 * M, H @ node]")
