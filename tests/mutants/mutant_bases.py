"""The sound specs in which faults are planted: each transport once; sizes, tiles and pieces that a second runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Program
from chunkdsl.lower.program import lower
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.plan.schedule import Schedule
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

HEAD = "mesh tp[3] over nvlink\ndim M = 1..40\ndim H = 24\ndim F = 96\n"
SMALL = "tile = 16x16x16, chunk = 8 along M"
GATHERED = HEAD + "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F @ tp, H]\n"
PARTIAL = HEAD + "tensor x : bf16[M, F @ tp]\ntensor w : bf16[H, F @ tp]\ntensor b : bf16[H]\n"


def gather(policy: str) -> str:
    return GATHERED + f"op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ {SMALL}, {policy} }} }}\n"


def scatter(policy: str) -> str:
    return PARTIAL + f"op f(x, w, b) -> y {{ y = reduce_scatter(x @ w.T, M) + b with {{ {SMALL}, {policy} }} }}\n"


def total(policy: str) -> str:
    return PARTIAL + f"op f(x, w, b) -> y {{ y = all_reduce(x @ w.T) + b with {{ {SMALL}, {policy} }} }}\n"


MLP = """
mesh tp[3] over nvlink
dim M = 1..40
dim H = 24
dim F = 96
tensor x : bf16[M @ tp, H]
tensor w1 : bf16[F @ tp, H]
tensor b1 : bf16[F @ tp]
tensor w2 : bf16[H, F @ tp]
op f(x, w1, b1, w2) -> y {
    h = gelu(all_gather(x) @ w1.T + b1) with { tile = 16x16x16, chunk = 8 along M, route = swizzle, via = copy_engine }
    y = reduce_scatter(h @ w2.T, M) with { tile = 16x16x16, chunk = 8 along M, route = direct, via = tma,
                                           place = own_sms(1), buffers = 1 }
}
"""
SWIGLU = """
mesh tp[3] over nvlink
dim M = 1..40
dim H = 24
dim F = 96
tensor x : bf16[M @ tp, H]
tensor w : bf16[2, F @ tp, H]
op f(x, w) -> y {
    g = all_gather(x) with { chunk = 8 along M, route = swizzle, via = ldst, place = co_located, buffers = 2 }
    y = swiglu(g @ w[0].T, g @ w[1].T) with { tile = 16x16x16 }
}
"""
# For the compiler: blocks as large as its passes want them.
LARGE = """
mesh tp[3] over nvlink
dim M = 1..4096
dim H = 1024
dim F = 3072
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
op f(x, w) -> y {
    y = all_gather(x) @ w.T with { tile = 128x128x64, chunk = 256 along M, via = ldst, place = own_sms(4) }
}
"""
ROUTED = "tile = 16x16x16, chunk = 4 per shard, place = own_sms(1), buffers = 2"
PLAN_GATHER = GATHERED + f"""
plan p(t) : all_gather over tp {{
    for i in range(tp - 1) {{
        lane 0 {{ send t[(rank - i) mod tp] part 0 of 2 to (rank + 1) mod tp }}
        lane 1 {{ fetch t[(rank + 1 + i) mod tp] part 1 of 2 from (rank + 1) mod tp }}
    }}
}}
op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ route = p, {ROUTED} }} }}
"""
PLAN_RING = GATHERED + f"""
plan p(t) : all_gather over tp {{
    for i in range(tp - 1) {{ fetch t[(rank - 1 - i) mod tp] from (rank - 1) mod tp }}
}}
op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ route = p, {ROUTED} }} }}
"""
PLAN_SCATTER = PARTIAL + f"""
plan p(t) : reduce_scatter over tp {{
    for i in range(tp - 1) {{
        lane 0 {{ send t[(rank - i - 1) mod tp] part 0 of 2 to (rank + 1) mod tp adding }}
        lane 1 {{ send t[(rank + i + 1) mod tp] part 1 of 2 to (rank - 1) mod tp adding }}
    }}
}}
op f(x, w, b) -> y {{ y = reduce_scatter(x @ w.T, M) + b with {{ route = p, {ROUTED} }} }}
"""
PLAN_EXCHANGE = PARTIAL + f"""
plan p(t) : all_reduce over tp {{
    for s in range(tp) {{
        for r in range(3, tp) {{ if rank == r {{ send t[s] to 1 adding }} }}
        if rank == 0 {{ fetch t[s] from 1 adding }}
        if rank mod 2 == 0 {{ if rank < 3 {{ if tp > 2 {{ fetch t[s] from 2 - rank adding }} }} }}
        if rank mod 2 == 1 {{ fetch t[s] from 0 }}
    }}
}}
op f(x, w, b) -> y {{ y = all_reduce(x @ w.T) + b with {{ route = p, {ROUTED} }} }}
"""
PLAN_GIVEN_BACK = PARTIAL + f"""
plan p(t) : reduce_scatter over tp {{
    for s in range(tp) {{
        let near = (s + 1) mod tp
        let far = (s + 2) mod tp
        for r in range(3, tp) {{ if rank == (s + r) mod tp {{ send t[s] to near adding }} }}
        if rank == far {{ send t[s] to near adding }}
        if rank == near {{ send t[s] to far }}
        if rank == far {{ if far != s {{ send t[s] to s adding }} }}
    }}
}}
op f(x, w, b) -> y {{ y = reduce_scatter(x @ w.T, M) + b with {{ route = p, {ROUTED} }} }}
"""
DEALT = HEAD + "tensor x : bf16[M, H @ tp]\ntensor w : bf16[F, H]\ntensor a : bf16[M, H]\ntensor v : bf16[F @ tp, H]\n"


def deal(policy: str) -> str:
    return DEALT + f"op f(x, w) -> y {{ y = all_to_all(x, H -> M) @ w.T with {{ {SMALL}, {policy} }} }}\n"


def deal_columns(policy: str, columns: int = 24) -> str:
    text = HEAD.replace("H = 24", f"H = {columns}") + "tensor x : bf16[M @ tp, H]\n"
    return text + f"op f(x) -> y {{ y = all_to_all(x, M -> H) with {{ chunk = 8 along M, {policy} }} }}\n"


def store_columns(policy: str) -> str:
    text = HEAD + "tensor a : bf16[M @ tp, H]\ntensor w : bf16[F, H]\n"
    return text + f"op f(a, w) -> y {{ y = all_to_all(a @ w.T, M -> F) with {{ {SMALL}, {policy} }} }}\n"


# The next rank fetches everything, and sends on what is for others.
PLAN_DEAL = """
plan p(t) : all_to_all over tp {
    let before = (rank - 1) mod tp
    for d in range(2, tp) {
        fetch t[(before + d) mod tp] from before into t[tp + d]
        send t[tp + d] to (before + d) mod tp into t[before]
    }
    fetch t[rank] from before into t[before]
}
"""
PUSHED = "route = swizzle, via = ldst, side = push, place = co_located, buffers = 2"
SPECS = {
    "gather_copy_pull": gather("route = swizzle, via = copy_engine, side = pull"),
    "gather_copy_push": gather("route = direct, via = copy_engine, side = push"),
    "gather_push": gather("route = swizzle, via = ldst, side = push, place = own_sms(1), buffers = 2"),
    "gather_pull": gather("route = direct, via = ldst, side = pull, place = own_sms(1), buffers = 1"),
    "gather_ring": gather("route = ring, via = tma, place = co_located, buffers = 2"),
    "scatter_push": scatter(PUSHED),
    "scatter_f32": scatter(PUSHED).replace("bf16", "f32"),
    "scatter_long": scatter(PUSHED).replace("chunk = 8 along", "chunk = 12 along").replace("1..40", "1..96"),
    "scatter_interleaved": scatter(f"{PUSHED}, order = interleaved").replace("chunk = 8 along", "chunk = 32 along")
    .replace("1..40", "1..160"),
    "scatter_tma": scatter("route = direct, via = tma, side = push, place = co_located, buffers = 1"),
    "scatter_hand_over": scatter("route = direct, via = tma, side = push, place = own_sms(1), buffers = 2"),
    "scatter_pull": scatter("route = swizzle, via = ldst, side = pull, place = co_located, buffers = 2"),
    "scatter_ring": scatter("route = ring, via = ldst, place = own_sms(1), buffers = 2"),
    "two_shot": total("algorithm = two_shot, route = swizzle, via = ldst, place = co_located, buffers = 2"),
    "one_shot": total("algorithm = one_shot, route = swizzle, via = ldst, place = co_located, buffers = 2"),
    "scatter_in_tiles": scatter(f"{PUSHED}, add = in_tiles"),
    "reduce_in_tiles": total(f"algorithm = two_shot, {PUSHED}, add = in_tiles"),
    "plan_gather": PLAN_GATHER,
    "plan_ring": PLAN_RING,
    "plan_scatter": PLAN_SCATTER,
    "plan_exchange": PLAN_EXCHANGE,
    "plan_given_back": PLAN_GIVEN_BACK,
    "deal_push": deal("route = swizzle, via = ldst, side = push, place = own_sms(1), buffers = 2"),
    "deal_pull": deal("route = direct, via = ldst, side = pull, place = own_sms(1), buffers = 2"),
    "deal_mixed": deal("route = swizzle, via = ldst, side = push, place = co_located, buffers = 2")
    .replace("chunk = 8 along", "chunk = 16 along")
    .replace("1..40", "1..96"),
    "deal_copied": deal("route = swizzle, via = copy_engine, side = push"),
    "deal_pull_columns": deal_columns("route = swizzle, via = ldst, side = pull, place = own_sms(1), buffers = 2"),
    "deal_ragged": deal_columns("route = direct, via = ldst, side = push, place = co_located, buffers = 1", 23),
    "deal_store_rows": DEALT
    + f"op f(a, v) -> y {{ y = all_to_all(a @ v.T, F -> M) with {{ {SMALL}, route = swizzle, buffers = 2 }} }}\n",
    "plan_deal": DEALT + PLAN_DEAL
    + f"op f(a, v) -> y {{ y = all_to_all(a @ v.T, F -> M) with {{ route = p, {ROUTED} }} }}\n",
    "plan_fetch": DEALT + PLAN_DEAL
    + f"op f(x, w) -> y {{ y = all_to_all(x, H -> M) @ w.T with {{ route = p, {ROUTED} }} }}\n",
    "deal_store_columns": store_columns("route = swizzle, buffers = 2"),
    "zigzag_gather": gather("route = swizzle, via = ldst, side = push, place = own_sms(1), buffers = 2")
    .replace("M @ tp", "M @ zigzag(tp)"),
    "cyclic_scatter": scatter(PUSHED).replace("w.T, M)", "w.T, M @ cyclic(tp, 16))"),
    "gather_library": gather("compute = library").replace("tile = 16x16x16, ", ""),
    "scatter_library": scatter("compute = library").replace("tile = 16x16x16, ", ""),
    "mlp": MLP,
    "swiglu": SWIGLU,
    "large": LARGE,
}


@dataclass(frozen=True)
class Base:
    """A spec that is known to be sound. `path` names it in messages, class `title` in its module."""

    program: Program
    schedule: Schedule


@cache
def build_base(name: str) -> Base:
    """Parsed and scheduled, with pieces of 4 rows by 16 columns, so that a chunk has several."""
    source = Source(f"{name}.chunk", SPECS[name])
    report = Report(source)
    program = lower(parse(source, report), source, report)
    schedule = schedule_program(program, report)
    assert not report.failed, report.diagnostics
    return Base(program, schedule if name == "large" else replace(schedule, ops=tuple(map(small_pieces, schedule.ops))))


def small_pieces(op):
    launches = []
    for n in op.launches:
        tiling = replace(n.tiling, piece_rows=4, piece_cols=16)
        if not n.products:  # the kernels that only add or copy: two row blocks to a shard
            tiling = replace(tiling, bm=8, bn=16)
        launches.append(replace(n, tiling=tiling))
    return replace(op, launches=tuple(launches), pad=max(n.tiling.bm for n in launches))
