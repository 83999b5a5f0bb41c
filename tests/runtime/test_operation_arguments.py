"""What a call refuses, before any rank has sent a byte, and what it takes."""

import pytest
import torch


def refused(two_ops, ranks, call, kind=ValueError):
    """The message with which rank 0 refuses; nothing was launched and the epoch did not move."""

    def body(m, machine):
        before = machine._world._launches[machine.rank]
        with pytest.raises(kind) as error:
            call(m, machine)
        assert machine._world._launches[machine.rank] == before and int(m.up.state.local[0]) == 0
        return str(error.value)

    return ranks(two_ops, body)[0]


def test_a_wrong_shape_names_tensor_rank_and_expectation(two_ops, ranks, draw):
    parts, _ = draw(20, 2)

    def wide(m, machine):
        x, w = parts["up"][machine.rank]
        m.up(x[:, :16], w, M=20)

    message = refused(two_ops, ranks, wide)
    assert "up: rank 0 passes x of shape (10, 16); with M = 20 its shard has shape (10, 32)" in message

    def another_rank(m, machine):
        x, w = parts["up"][machine.rank]
        m.up(x, w[:7], M=20)

    assert "passes w of shape (7, 32)" in refused(two_ops, ranks, another_rank)


def test_a_shard_that_does_not_fit_the_keyword_is_refused(two_ops, ranks, draw):
    parts, _ = draw(20, 2)
    message = refused(two_ops, ranks, lambda m, machine: m.up(*parts["up"][machine.rank], M=30))
    assert "x of shape (10, 32); with M = 30 its shard has shape (15, 32)" in message


@pytest.mark.parametrize(
    ("name", "change"), [("x", lambda x, w: (x.float(), w)), ("w", lambda x, w: (x, w.to(torch.float16)))]
)
def test_a_wrong_dtype_names_tensor_and_declaration(two_ops, ranks, draw, name, change):
    parts, _ = draw(20, 2)
    message = refused(two_ops, ranks, lambda m, machine: m.up(*change(*parts["up"][machine.rank]), M=20))
    assert f"up: {name} is torch.float" in message and "declared as torch.bfloat16" in message


def test_a_wrong_number_of_dimensions_is_refused(two_ops, ranks, draw):
    parts, _ = draw(20, 2)

    def flat(m, machine):
        x, w = parts["up"][machine.rank]
        m.up(x.flatten(), w, M=20)

    assert "x has 1 dimensions, declared with 2" in refused(two_ops, ranks, flat)


@pytest.mark.parametrize("rows", [65, 4096])
def test_rows_above_the_range_are_refused(two_ops, ranks, rows):
    def much(m, machine):
        m.up(torch.zeros(-(-rows // 2), 32).bfloat16(), torch.zeros(24, 32).bfloat16(), M=rows)

    assert f"M = {rows} is outside 0..64" in refused(two_ops, ranks, much)


def test_rows_above_the_instance_s_bound_are_refused_and_those_below_are_not(two_ops, ranks, draw):
    parts, _ = draw(20, 2)
    over, _ = draw(24, 2)

    def body(m, machine):
        y = m.up(*parts["up"][machine.rank])
        with pytest.raises(ValueError, match=r"M = 24 is outside 0\.\.20"):
            m.up(*over["up"][machine.rank])
        m.check()
        return y.shape

    assert ranks(two_ops, body, M=20) == [(20, 24), (20, 24)]


def test_tensors_and_sizes_that_the_op_does_not_have_are_refused(two_ops, ranks, draw):
    parts, _ = draw(20, 2)
    assert "up takes 2 tensors (x, w), not 1" in refused(
        two_ops, ranks, lambda m, machine: m.up(parts["up"][machine.rank][0]), TypeError
    )
    assert "up has no size N; its run-time sizes: M" in refused(
        two_ops, ranks, lambda m, machine: m.up(*parts["up"][machine.rank], N=3), TypeError
    )


@pytest.mark.parametrize("size", [20.0, "20"])
def test_a_size_that_is_no_integer_is_refused_also_by_calls_of_known_sizes(two_ops, ranks, draw, size):
    parts, _ = draw(20, 2)

    def body(m, machine):
        said, given = [], parts["up"][machine.rank]
        for call in (m.up, m.up.exact, m.up.fallback):
            for _ in range(2):
                with pytest.raises(TypeError) as error:
                    call(*given, M=size)
                said.append(str(error.value))
                call(*given, M=20)  # notes what the next one is not to take
        m.check()
        return set(said)

    assert ranks(two_ops, body) == [{f"up: M = {size!r} is not an integer"}] * 2


def test_a_bound_that_is_no_integer_is_refused(two_ops, ranks):
    what = r"M = 20\.0 is not an integer"
    with pytest.raises(TypeError, match=what):
        ranks(two_ops, lambda m, machine: None, M=20.0)
    with pytest.raises(TypeError, match=what):
        two_ops.symmetric_bytes({"M": 20.0})


def test_without_the_keyword_rows_are_those_of_equal_shards(two_ops, ranks, draw, same_bits):
    parts, _ = draw(20, 2)

    def body(m, machine):
        mine = parts["up"][machine.rank]
        a, b = m.up(*mine), m.up(*mine, M=20)
        m.check()
        return same_bits(a, b)

    assert all(ranks(two_ops, body))


def test_a_ragged_size_needs_the_keyword(two_ops, ranks, draw):
    parts, whole = draw(19, 2)

    def body(m, machine):
        mine = parts["up"][machine.rank]
        y = m.up(*mine, M=19)
        m.check()
        return y

    got = torch.cat(ranks(two_ops, body), 1).double()
    assert (got - whole["x"].double() @ whole["w"].double().T).abs().max() < 0.05


@pytest.mark.parametrize("op", ["up", "down"])
def test_check_calls_names_the_ranks_that_call_with_other_sizes(two_ops, ranks, draw, op):
    one, _ = draw(20, 3)
    other, _ = draw(18, 3)

    def body(m, machine):
        parts = other if machine.rank == 1 else one
        with pytest.raises(RuntimeError, match=rf"{op}: ranks \[1\] call with other sizes than rank 0"):
            getattr(m, op)(*parts[op][machine.rank], M=18 if machine.rank == 1 else 20)
        y = getattr(m, op)(*one[op][machine.rank], M=20)  # nothing has begun, so the next call is an ordinary one
        m.check()
        return y.shape

    assert len(ranks(two_ops, body, world=3, check_calls=True)) == 3


def test_inputs_that_are_not_contiguous_or_not_aligned_give_the_same_bits(two_ops, ranks, draw, same_bits):
    parts, _ = draw(20, 2)

    def shifted(t):
        room = torch.zeros(t.numel() + 1, dtype=t.dtype)
        room[1:] = t.flatten()
        out = room[1:].view(t.shape)
        assert out.data_ptr() % 16
        return out

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        strided = torch.stack([x, x], 2)[:, :, 0]
        columns = w.T.contiguous().T
        assert not strided.is_contiguous() and not columns.is_contiguous()
        a, b, c = m.up(x, w, M=20), m.up(strided, columns, M=20), m.up(shifted(x), shifted(w), M=20)
        m.check()
        return same_bits(a, b) and same_bits(a, c)

    assert all(ranks(two_ops, body))


def test_only_one_rank_is_misaligned(two_ops, ranks, draw, same_bits):
    """What the ranks do must not depend on a local pointer."""
    parts, _ = draw(20, 2)

    def body(m, machine):
        x, w = parts["up"][machine.rank]
        a = m.up(x, w, M=20)
        b = m.up(torch.stack([x, x], 2)[:, :, 0] if machine.rank else x, w, M=20)
        m.check()
        return same_bits(a, b)

    assert all(ranks(two_ops, body))


def test_out_is_written_and_returned(two_ops, ranks, draw, same_bits):
    parts, _ = draw(20, 2)

    def body(m, machine):
        mine = parts["up"][machine.rank]
        out = machine.empty((20, 24), torch.bfloat16)
        got = m.up(*mine, M=20, out=out)
        fresh = m.up(*mine, M=20)
        m.check()
        return got is out and same_bits(out, fresh)

    assert all(ranks(two_ops, body))


@pytest.mark.parametrize("out", [torch.zeros(20, 25).bfloat16(), torch.zeros(20, 24), torch.zeros(24, 20).bfloat16().T])
def test_an_out_that_does_not_fit_is_refused(two_ops, ranks, draw, out):
    parts, _ = draw(20, 2)
    if out.shape == (20, 24) and out.dtype == torch.bfloat16:
        assert not out.is_contiguous()
    message = refused(two_ops, ranks, lambda m, machine: m.up(*parts["up"][machine.rank], M=20, out=out))
    assert "out for y must be a contiguous, aligned torch.bfloat16 tensor of shape (20, 24)" in message


def test_more_outs_than_results_are_refused(two_ops, ranks, draw):
    parts, _ = draw(20, 2)
    out = torch.zeros(20, 24).bfloat16()
    message = refused(two_ops, ranks, lambda m, machine: m.up(*parts["up"][machine.rank], M=20, out=(out, out)))
    assert "up has 1 results, out has 2" in message
