"""Modules on a mesh of two axes, on simulated ranks: subgroups, both axes together, routes of two tiers."""

import re

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import class_name, render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import draw
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

HEAD = """mesh dp[2] over rdma, tp[2] over nvlink
dim M = 0..32
dim H = 16
dim F = 32
tensor x  : bf16[M @ (dp, tp), H]
tensor u  : bf16[M @ dp, H @ tp]
tensor w  : bf16[F @ tp, H]
tensor v  : bf16[H, F @ tp]
tensor wf : bf16[F @ (dp, tp), H]
tensor vf : bf16[H, F @ (dp, tp)]
tensor wd : bf16[F, H @ tp]
tensor wh : bf16[F, H]
tensor wt : bf16[F @ dp, H]
tensor k  : bf16[M, H]
tensor s  : bf16[M @ zigzag(tp), H]
tensor c  : bf16[M @ cyclic(dp, 16), H]
tensor b  : bf16[H]
"""
TILE = "tile = 16x16x16, chunk = 8 along M"
OPS = {
    "data and tensor parallel": "op f(x, w, v) -> y {\n"
    f"    h = gelu(all_gather(x, over = tp) @ w.T) with {{ {TILE} }}\n"
    f"    y = reduce_scatter(h @ v.T, M, over = tp) + x with {{ {TILE}, via = ldst, place = own_sms(1) }}\n}}",
    "outer axis": f"op f(u, wd) -> y {{ y = all_gather(u, over = dp) @ wd.T with {{ {TILE}, via = ldst }} }}",
    "all_to_all and back": f"""op f(u, wh) -> y {{
    g = all_to_all(u, H -> M, over = tp) with {{ via = ldst, side = pull }}
    y = all_to_all(relu(g @ wh.T), M -> F, over = tp) with {{ {TILE} }}
}}""",
    "all_to_all along the outer axis, by a plan": f"""plan p(t) : all_to_all over dp {{
    for i in range(1, dp) {{ fetch t[dp_rank] from (dp_rank + i) mod dp into t[(dp_rank + i) mod dp] }}
}}
op f(k, wt) -> y {{ y = all_to_all(k @ wt.T, F -> M, over = dp) with {{ {TILE}, route = p, place = own_sms(1) }} }}""",
    "zigzag rows along the inner axis": f"""op f(s, w, v) -> y {{
    h = relu(all_gather(s, over = tp) @ w.T) with {{ {TILE} }}
    y = reduce_scatter(h @ v.T, M @ zigzag(tp), over = tp) + s with {{ {TILE} }}
}}""",
    "cyclic rows along the outer axis": f"""op f(c, w) -> y {{
    y = all_gather(c, over = dp) @ w.T with {{ {TILE}, route = ring, via = ldst, place = own_sms(1) }}
}}""",
    "both axes": "op f(x, wf, vf, b) -> y {\n"
    f"    h = relu(all_gather(x, over = (dp, tp)) @ wf.T) with {{ {TILE} }}\n"
    f"    y = reduce_scatter(h @ vf.T, M, over = (dp, tp)) + b with {{ {TILE}, route = ring }}\n}}",
    "both axes, weights over one": "op f(x, w) -> y {\n"
    f"    y = all_gather(x, over = (dp, tp)) @ w.T with {{ {TILE}, via = tma, side = pull, place = co_located }}\n}}",
    "all_reduce over both": "op f(x, wf, vf) -> y {\n"
    f"    h = all_gather(x, over = (dp, tp)) @ wf.T with {{ {TILE}, order = local_first }}\n"
    f"    y = all_reduce(h @ vf.T, over = (dp, tp)) with {{ {TILE} }}\n}}",
    "two tiers": "op f(x, wf) -> y {\n    y = all_gather(x, over = (dp, tp)) @ wf.T\n"
    f"        with {{ {TILE}, route = hierarchical(swizzle, direct), via = ldst, place = own_sms(2) }}\n}}",
    "a plan of two tiers": """plan tiers(t) : all_gather over (dp, tp) {
    for i in range(1, dp) { send t[dp_rank, tp_rank] to ((dp_rank + i) mod dp, tp_rank) }
    for k in range(dp) {
        for j in range(1, tp) { send t[(dp_rank - k) mod dp, tp_rank] to (dp_rank, (tp_rank + j) mod tp) }
    }
}
op f(x, wf) -> y {
    y = all_gather(x, over = (dp, tp)) @ wf.T with { route = tiers, tile = 16x16x16, chunk = 8 along M }
}""",
    "all_reduce of two tiers": "op f(x, wf, vf) -> y {\n    h = all_gather(x, over = (dp, tp)) @ wf.T\n"
    f"        with {{ {TILE}, route = hierarchical(direct, swizzle), place = own_sms(1) }}\n"
    "    y = all_reduce(h @ vf.T, over = (dp, tp))\n"
    f"        with {{ {TILE}, route = hierarchical(ring, direct), place = own_sms(1) }}\n}}",
    "two tiers, rings": "op f(x, wf) -> y {\n    y = all_gather(x, over = (dp, tp)) @ wf.T\n"
    f"        with {{ {TILE}, route = hierarchical(ring, ring), via = tma, place = own_sms(1) }}\n}}",
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """(schedule, typed op, class, module) of a spec with one op."""
    folder, made = tmp_path_factory.mktemp("meshes"), {}

    def build(name, change=lambda text: text):
        if (name, change) not in made:
            checked = check_source(Source("two_axes.chunk", f"{HEAD}{OPS[name]}\n"))
            assert not checked.report.failed, [d.message for d in checked.report.diagnostics]
            text = render_module(checked.schedule, ((2, 2), (2, 3), (1, 2), (2, 1)))
            changed = change(text)
            assert change.__name__ == "<lambda>" or changed != text, "nothing was planted"
            module = load(changed, folder, f"module_{len(made)}")
            made[name, change] = checked.schedule, checked.program.ops[0], module
        return made[name, change]

    return build


@pytest.fixture(scope="module")
def run(build):
    """Rows of a simulated run on 2x2 ranks: of 9 rows they hold 3, 2, 2, 2, and of 3 rows 1, 1, 1, 0."""

    def run(name, change=lambda text: text, world=(2, 2), seed=0, rows=(9,)):
        schedule, typed, module = build(name, change) if change.__name__ != "<lambda>" else build(name)
        calls = [{"M": n} for n in rows]
        title = class_name("two_axes.chunk")
        return run_op(module, title, schedule, schedule.ops[0], typed, world, seed, calls, pointers=seed % 2 == 1)

    return run


def failures(rows):
    return [f"{r.check}: {r.detail}" for r in rows if not r.passed]


@pytest.mark.parametrize("name", OPS)
def test_fused_calls_have_the_bits_of_exact_the_values_of_float64_and_the_log_of_the_plan(run, name):
    rows = run(name, rows=(9, 3) if name in ("data and tensor parallel", "two tiers") else (9,))
    assert failures(rows) == [] and {r.check for r in rows} >= {"simulation", "conformance"}


def test_pointer_loads_and_meshes_that_are_not_square(run):
    assert failures(run("two tiers", world=(2, 3), seed=1, rows=(9,))) == []
    assert failures(run("data and tensor parallel", world=(1, 2), rows=(9,))) == []
    assert failures(run("two tiers", world=(2, 1), rows=(9,))) == []


# ---- what is planted must be found


def wrong_subgroup(text):
    return text.replace("axes[1:]: machine.among(tuple(inner), groups[1]),",
                        "axes[1:]: machine.among(tuple(outer), groups[0]),")  # fmt: skip


def swapped_axes(text):
    return text.replace("axes[:1]: machine.among(tuple(outer)", "axes[:1]: machine.among(tuple(inner)")


def swapped_indices(text):
    return text.replace("at = divmod(machine.rank, shape[1])", "at = divmod(machine.rank, shape[1])[::-1]")


def flat_shards(text):
    return text.replace("return owner // INNER * outer + owner % INNER * tl.cdiv(part, INNER)",
                        "return owner * tl.cdiv(rows, W)")  # fmt: skip


def flat_heights(text):
    return text.replace("return tl.maximum(tl.minimum(part - owner % INNER * each, each), 0)",
                        "return tl.minimum(rows - owner * tl.cdiv(rows, W), tl.cdiv(rows, W))")  # fmt: skip


def late_blocks_of_all_ranks(text):
    return text.replace("owner * half, (2 * W - 2 - owner) * half) + local", "owner * half, W * half) + local")


def wrong_peer_table(text):
    return text.replace("(2, 0, 0, 0), (1, 0, 0, 0), (1, 2, 0, 0)", "(1, 0, 0, 0), (2, 0, 0, 0), (3, 2, 0, 0)")


def no_signal_between_nodes(text):
    told = r"^( +)(set_flag\(words_of\(\w+, reader\) \+ word, epoch, state\))$"
    return re.sub(told, r"\1if reader % 2 != rank % 2:\n\1    \2", text, flags=re.MULTILINE)


PLANTED = [
    ("data and tensor parallel", wrong_subgroup),
    ("outer axis", swapped_axes),
    ("all_to_all along the outer axis, by a plan", swapped_axes),
    ("all_to_all and back", swapped_indices),
    ("data and tensor parallel", swapped_indices),
    ("zigzag rows along the inner axis", late_blocks_of_all_ranks),
    ("both axes", flat_shards),
    ("both axes", flat_heights),
    ("two tiers", wrong_peer_table),
    ("two tiers", no_signal_between_nodes),
]


@pytest.mark.parametrize(("name", "change"), PLANTED, ids=lambda x: getattr(x, "__name__", x))
def test_a_planted_fault_is_found(run, name, change):
    assert failures(run(name, change, rows=(9,))) != []


@pytest.mark.parametrize("name", ["zigzag rows along the inner axis", "all_to_all and back"])
def test_the_fallback_does_the_same(build, name):
    schedule, typed, module = build(name)
    inputs = draw(typed, schedule.ops[0], {"M": 9}, (2, 2), 3, True)

    def host(machine):
        f = module.TwoAxes(machine=machine, mesh=(2, 2)).f
        return f(*inputs.shards[machine.rank], M=9), f.fallback(*inputs.shards[machine.rank], M=9)

    for fused, plain in World(4).run(host):
        assert fused.isfinite().all() and torch.equal(fused, plain)


# ---- construction and sizes


def construct(module, world, mesh, body=lambda m: None, **bounds):
    return World(world).run(lambda machine: body(module(machine=machine, mesh=mesh, **bounds)))


def test_a_mesh_must_be_one_that_the_module_is_proven_for(build):
    _, _, module = build("data and tensor parallel")
    assert "Proven for 2x2, 2x3, 1x2, 2x1 ranks" in module.__doc__ and module.TwoAxes.AXES == ("dp", "tp")
    with pytest.raises(ValueError, match=r"for 2x2, 2x3, 1x2, 2x1 ranks, not for 1x4; rebuild it: .* --world 1x4"):
        construct(module.TwoAxes, 4, (1, 4))
    with pytest.raises(ValueError, match="a mesh of 2x2 ranks, and 6 processes"):
        construct(module.TwoAxes, 6, (2, 2))
    with pytest.raises(ValueError, match=r"runs on a mesh of two axes: pass mesh=, a DeviceMesh of dims"):
        construct(module.TwoAxes, 4, None)


def two_gates(text):
    return text.replace('GATES, FALLBACK = ((1, "", 0),)', 'GATES, FALLBACK = (((1, 2), "M", 8), ((2, 2), "M", 16),)')


def test_the_gate_of_an_instance_goes_by_both_axes(build):
    _, _, module = build("data and tensor parallel", two_gates)
    found = {mesh: construct(module.TwoAxes, mesh[0] * mesh[1], mesh, lambda m: m.f.gate)[0]
             for mesh in ((1, 2), (2, 1), (2, 2), (2, 3))}  # fmt: skip
    assert found == {(1, 2): ("M", 8), (2, 1): ("", 0), (2, 2): ("M", 16), (2, 3): ("M", 16)}


def test_a_size_that_is_left_out_is_what_equal_shards_make(build):
    schedule, typed, module = build("data and tensor parallel")
    inputs = draw(typed, schedule.ops[0], {"M": 12}, (2, 2), 3, False)

    def host(machine):
        m = module.TwoAxes(machine=machine, mesh=(2, 2))
        shards = inputs.shards[machine.rank]
        left_out, given = m.f(*shards), m.f(*shards, M=12)
        m.check()
        return torch.equal(left_out, given), m.f.local_shape((("M", True, "dp"),), {"M": 9})

    assert World(4).run(host) == [(True, (n,)) for n in (3, 2, 2, 2)]


def test_a_shard_of_the_wrong_rank_is_refused_with_the_right_shape(build):
    schedule, typed, module = build("both axes")
    inputs = draw(typed, schedule.ops[0], {"M": 9}, (2, 2), 3, False)

    def host(machine):
        m = module.TwoAxes(machine=machine, mesh=(2, 2))
        try:
            return m.f(*inputs.shards[1], M=9) if machine.rank == 0 else None
        except ValueError as error:
            return str(error)

    said = World(4).run(host)
    assert said[0].endswith("rank 0 passes x of shape (2, 16); with M = 9 its shard has shape (3, 16)")


def test_memory_is_that_of_a_subgroup(build):
    _, _, module = build("data and tensor parallel")
    cls = module.TwoAxes
    assert cls.symmetric_bytes({"M": 32}, (2, 2)) < cls.symmetric_bytes({"M": 32}, (1, 4))
    assert cls.symmetric_bytes({"M": 32}, (2, 2)) == cls.symmetric_bytes({"M": 16}, (1, 2))
