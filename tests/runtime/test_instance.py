"""Construction, the vote, several instances and ops, close."""

import pytest
import torch

from chunkdsl.sim.world import World

MANY = 20


def test_a_world_size_that_is_not_proven_is_refused_with_the_command(two_ops):
    with pytest.raises(
        ValueError, match=r"proven for 1, 2, 3 ranks, not for 4; rebuild it: chunkdsl build .* --world 4"
    ):
        World(4).run(lambda m: two_ops(machine=m))


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({"M": 65}, ValueError, r"the bound M = 65 is outside the declared 0\.\.64"),
        ({"M": -1}, ValueError, "outside"),
        ({"N": 8}, TypeError, "TwoOps has no run-time size N; it has M"),
    ],
)
def test_bounds_that_the_spec_does_not_allow_are_refused(two_ops, bounds, error, message):
    with pytest.raises(error, match=message):
        World(1).run(lambda m: two_ops(machine=m, **bounds))


def test_bounds_that_differ_between_ranks_are_refused_on_every_rank(two_ops):
    def host(machine):
        with pytest.raises(RuntimeError, match=r"ranks \[1\] differ from rank 0 in module, bounds, options"):
            two_ops(machine=machine, M=32 if machine.rank == 1 else 64)
        return "refused"

    assert World(3).run(host) == ["refused"] * 3


def test_modules_of_other_specs_are_refused_on_every_rank(two_ops, built):
    other = built("buffers = 2")

    def host(machine):
        with pytest.raises(RuntimeError, match="differ from rank 0"):
            (other if machine.rank else two_ops)(machine=machine)
        return "refused"

    assert World(2).run(host) == ["refused"] * 2


def test_smaller_bounds_ask_for_less_memory_and_give_the_same_bits(two_ops, ranks, draw, same_bits):
    parts, _ = draw(MANY, 2)

    def body(m, machine):
        y = m.up(*parts["up"][machine.rank], M=MANY)
        m.check()
        return y, m.up._up_x_gathered.local.numel()

    small, large = ranks(two_ops, body, M=MANY), ranks(two_ops, body)
    for (a, less), (b, more) in zip(small, large, strict=True):
        assert same_bits(a, b) and less < more
    assert two_ops.symmetric_bytes({"M": MANY}, 2) < two_ops.symmetric_bytes({}, 2)


def test_symmetric_bytes_is_what_construction_allocates(two_ops):
    asked = []

    def host(machine):
        plain = machine.symmetric

        def symmetric(name, shape, dtype):
            made = plain(name, shape, dtype)
            asked.append(made.local.numel() * made.local.element_size())
            return made

        machine.symmetric = symmetric
        two_ops(machine=machine, M=40)

    World(2).run(host)
    assert sum(asked) == 2 * two_ops.symmetric_bytes({"M": 40}, 2)


def test_two_instances_side_by_side(two_ops, draw, same_bits):
    parts, _ = draw(MANY, 2)
    other, _ = draw(9, 2, seed=1)

    def host(machine):
        one, two = two_ops(machine=machine), two_ops(machine=machine, M=32)
        r = machine.rank
        first, second = one.up(*parts["up"][r], M=MANY), two.up(*other["up"][r], M=9)
        third, fourth = one.up(*other["up"][r], M=9), two.up(*parts["up"][r], M=MANY)
        one.check(), two.check()
        one.close()
        fifth = two.up(*parts["up"][r], M=MANY)  # closing one leaves the other alone
        two.check()
        return same_bits(first, fourth) and same_bits(second, third) and same_bits(first, fifth)

    assert all(World(2, seed=3).run(host))


def test_after_close_every_way_to_call_raises(two_ops, ranks, draw):
    parts, _ = draw(MANY, 2)

    def body(m, machine):
        mine = parts["up"][machine.rank]
        m.up(*mine, M=MANY)
        m.close()
        for call in (m.up, m.up.exact, m.up.fallback):
            with pytest.raises(RuntimeError, match="TwoOps is closed"):
                call(*mine, M=MANY)
        return "closed"

    assert ranks(two_ops, body) == ["closed"] * 2


def test_results_never_lie_in_communication_memory(two_ops, ranks, draw):
    parts, _ = draw(MANY, 2)

    def body(m, machine):
        r = machine.rank
        kept = [m.up(*parts["up"][r], M=MANY), m.down(*parts["down"][r], M=MANY)]
        kept += [m.up(*parts["up"][r], M=MANY), m.down(*parts["down"][r], M=MANY)]
        m.check()
        spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in kept]
        memory = [
            (s.local.data_ptr(), s.local.data_ptr() + s.local.numel() * s.local.element_size())
            for op in (m.up, m.down)
            for s in vars(op).values()
            if hasattr(s, "local")
        ]
        assert len(memory) >= 6
        apart = all(end <= low or high <= start for start, end in spans for low, high in memory)
        return apart, len(set(spans))

    assert ranks(two_ops, body) == [(True, 4)] * 2


def test_one_rank_alone_runs_fused(two_ops, ranks, draw):
    parts, whole = draw(MANY, 1)

    def body(m, machine):
        y, z = m.up(*parts["up"][0]), m.down(*parts["down"][0])
        m.check()
        return y, z

    ((y, z),) = ranks(two_ops, body, world=1)
    assert (y.double() - whole["x"].double() @ whole["w"].double().T).abs().max() < 0.02
    assert (z.double() - whole["a"].double() @ whole["v"].double().T).abs().max() < 0.02
    assert torch.isfinite(y).all()
