"""When a call does not run fused, what it does instead, and what it says."""

import warnings

import pytest
import torch
import torch.distributed as dist

FEW, MANY = 7, 20


def epoch(machine, op):
    machine.synchronize()
    return int(op.state.local[0])


@pytest.fixture(scope="module")
def gated(built):
    return built("fuse_from = 8 along M")


def test_below_the_gate_a_call_runs_the_fallback_and_does_not_advance_the_epoch(gated, ranks, draw, same_bits):
    few, _ = draw(FEW, 2)
    many, _ = draw(MANY, 2)

    def body(m, machine):
        seen = []
        for parts, rows in ((many, MANY), (few, FEW), (many, MANY)):
            launches = machine._world._launches[machine.rank]
            y = m.up(*parts["up"][machine.rank], M=rows)
            seen.append((machine._world._launches[machine.rank] > launches, epoch(machine, m.up)))
            if rows == FEW:
                assert same_bits(y, m.up.fallback(*parts["up"][machine.rank], M=rows))
        m.check()
        return seen

    assert ranks(gated, body) == [[(True, 1), (False, 1), (True, 2)]] * 2


def test_at_the_gate_itself_a_call_runs_fused(gated, ranks, draw):
    parts, _ = draw(8, 2)

    def body(m, machine):
        m.up(*parts["up"][machine.rank], M=8)
        return epoch(machine, m.up)

    assert ranks(gated, body) == [1, 1]


def test_a_captured_call_and_an_eager_one_have_gates_of_their_own(built, ranks, draw):
    """Of the same sizes, in turns: what a captured call noted is not played in an eager one."""
    parts, _ = draw(FEW, 2)

    def body(m, machine):
        seen = []
        for captured in (True, False, True, True, False):
            machine.capturing = lambda captured=captured: captured
            assert (m.up.unfused({"M": FEW}) is None) == captured
            m.up(*parts["up"][machine.rank], M=FEW)
            seen.append(epoch(machine, m.up))
        return seen

    assert ranks(built("fuse_from = 2 along M, eager_from = 8 along M"), body) == [[1, 1, 2, 3, 3]] * 2


def test_a_gated_call_writes_out_and_warns_of_nothing(gated, ranks, draw, same_bits):
    parts, _ = draw(FEW, 2)

    def body(m, machine):
        out = torch.zeros(FEW, 24).bfloat16()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = m.up(*parts["up"][machine.rank], M=FEW, out=out)
        return got is out and same_bits(out, m.up.fallback(*parts["up"][machine.rank], M=FEW))

    assert all(ranks(gated, body))


def test_with_fallback_exact_a_gated_call_keeps_the_bits_of_exact(built, ranks, draw, same_bits):
    module = built("fuse_from = 8 along M, fallback = exact")
    parts, _ = draw(FEW, 2)

    def body(m, machine):
        launches = machine._world._launches[machine.rank]
        y = m.up(*parts["up"][machine.rank], M=FEW)
        assert machine._world._launches[machine.rank] > launches
        exact = m.up.exact(*parts["up"][machine.rank], M=FEW)
        m.check()
        return same_bits(y, exact), epoch(machine, m.up)

    assert ranks(module, body) == [(True, 0)] * 2


def test_fused_exact_and_fallback_agree(gated, ranks, draw, same_bits):
    parts, whole = draw(MANY, 2)

    def body(m, machine):
        mine = parts["up"][machine.rank]
        fused, exact = m.up(*mine, M=MANY), m.up.exact(*mine, M=MANY)
        m.check()
        return same_bits(fused, exact), m.up.fallback(*mine, M=MANY).double(), fused.double()

    for rank, (equal, library, fused) in enumerate(ranks(gated, body)):
        wanted = (whole["x"].double() @ whole["w"].double().T)[:, rank * 24 : rank * 24 + 24]
        assert equal and (fused - wanted).abs().max() < 0.02 and (library - wanted).abs().max() < 0.02


@pytest.fixture
def alone(tmp_path):
    """A gloo group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_without_a_gpu_the_module_runs_its_fallback_and_says_so_once(two_ops, draw, alone):
    m = two_ops(device="cpu")
    parts, whole = draw(MANY, 1)
    with pytest.warns(RuntimeWarning, match="up runs its fallback: there is no GPU"):
        y = m.up(*parts["up"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = m.up(*parts["up"][0])
    assert torch.equal(y, again)
    assert (y.double() - whole["x"].double() @ whole["w"].double().T).abs().max() < 0.02
    with pytest.raises(RuntimeError, match="exact needs the kernels: there is no GPU"):
        m.up.exact(*parts["up"][0])
    m.close()
    with pytest.raises(RuntimeError, match="closed"):
        m.up(*parts["up"][0])


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 0.02), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("rows", [0, 1, 20])
def test_the_fallback_takes_any_float_and_any_rows(two_ops, draw, alone, dtype, limit, rows):
    m = two_ops(device="cpu")
    parts, whole = draw(rows, 1)
    y = m.up.fallback(*(t.to(dtype) for t in parts["up"][0]))
    z = m.down.fallback(*(t.to(dtype) for t in parts["down"][0]))
    for got, a, b in ((y, whole["x"], whole["w"]), (z, whole["a"], whole["v"])):
        wanted = a.double() @ b.double().T
        assert got.shape == wanted.shape
        assert rows == 0 or (got.double() - wanted).abs().max() <= limit
    assert y.dtype is (torch.float64 if dtype is torch.float64 else torch.bfloat16)


def test_fallback_none_raises_where_the_op_cannot_run_fused(built, draw, alone):
    m = built("fallback = none")(device="cpu")
    parts, _ = draw(MANY, 1)
    with pytest.raises(RuntimeError, match="up cannot run fused: there is no GPU; the spec says fallback = none"):
        m.up(*parts["up"][0])
    with pytest.warns(RuntimeWarning):
        m.down(*parts["down"][0])  # the other op's spec does not say so
