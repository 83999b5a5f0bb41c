"""Small specs, their plans and their predictions for the tests of the cost model."""

from functools import cache

from chunkdsl.cost.constants import machine
from chunkdsl.cost.predict import predict
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = """mesh tp[4] over nvlink
dim M = 1..8192
tensor x : bf16[M @ tp, 2048]
tensor w : bf16[4096 @ tp, 2048]
tensor v : bf16[2048, 4096 @ tp]
"""
GATHER = HEAD + "op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ {0} }} }}\n"
SCATTER = HEAD + "tensor h : bf16[M, 4096 @ tp]\nop f(h, v) -> y {{ y = reduce_scatter(h @ v.T, M) with {{ {0} }} }}\n"
SMALL = HEAD + "tensor p : bf16[M, 2048] sum tp\nop f(p) -> y {{ y = all_reduce(p) with {{ {0} }} }}\n"
REDUCE = HEAD + "tensor h : bf16[M, 4096 @ tp]\nop f(h, v) -> y {{ y = all_reduce(h @ v.T) with {{ {0} }} }}\n"
KINDS = {
    "copies": GATHER.format("via = copy_engine, chunk = 256 along M"),
    "direct copies": GATHER.format("via = copy_engine, route = direct, side = push, chunk = 256 along M"),
    "tma gather": GATHER.format("via = tma, place = own_sms(8), chunk = 256 along M"),
    "ring gather": GATHER.format("via = ldst, route = ring, place = own_sms(8), chunk = 256 along M"),
    "mixed gather": GATHER.format("via = ldst, place = co_located, chunk = 256 along M"),
    "push": SCATTER.format("via = ldst, place = co_located, chunk = 256 along M"),
    "pull": SCATTER.format("via = ldst, place = co_located, side = pull, chunk = 256 along M"),
    "tma scatter": SCATTER.format("via = tma, place = own_sms(8), chunk = 256 along M"),
    "ring scatter": SCATTER.format("via = tma, route = ring, place = own_sms(8), chunk = 256 along M"),
    "two shots": REDUCE.format("chunk = 256 along M"),
    "sums in tiles": SCATTER.format("chunk = 256 along M, add = in_tiles"),
    "two shots, sums in tiles": REDUCE.format("chunk = 256 along M, add = in_tiles"),
    "words": SMALL.format("algorithm = one_shot, validity = word"),
    "marks twice": SMALL.format("algorithm = two_shot, buffers = 3"),
    "flags, one buffer": SMALL.format("algorithm = one_shot, validity = flag, buffers = 1"),
    "one shot": REDUCE.format("algorithm = one_shot, buffers = 2, chunk = 256 along M"),
}


@cache
def schedule_of(text):
    checked = check_source(Source("test.chunk", text))
    assert not checked.report.failed, [d.message for d in checked.report.diagnostics]
    return checked.schedule


@cache
def plan_of(text, world, rows):
    schedule = schedule_of(text)
    return schedule.ops[0], unroll(schedule, schedule.ops[0], world, [{"M": rows}])


def predicted(text, world=4, rows=4096, on=None):
    return predict(*plan_of(text, world, rows), on or machine("h200", "nvlink"))
