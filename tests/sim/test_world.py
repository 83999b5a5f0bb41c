"""Good modules run clean and right over seeds, orders and residency; hosts, streams and collectives behave."""

import pytest
import torch

from chunkdsl.sim import CollectiveMismatch, Deadlock, KernelError, SimulationFault, World
from chunkdsl.sim.scheduler import POLICIES


def noise(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def all_reduce(module, world, M=24, N=32, K=24, calls=2, dtype=torch.bfloat16):
    """Run the fused GEMM; every call's results by rank, and the float32 references."""
    a = [[noise(M, K, dtype=dtype, seed=10 * c + r) for r in range(world.size)] for c in range(calls)]
    b = [noise(K, N, dtype=dtype, seed=100 + r) for r in range(world.size)]

    def host(machine):
        op = module.GemmAllReduce(machine, M, N)
        out = []
        for c in range(calls):
            machine.next_call()
            out.append(op(a[c][machine.rank], b[machine.rank]))
        return out

    results = world.run(host)
    for c in range(calls):
        want = sum(a[c][r].float() @ b[r].float() for r in range(world.size))
        for r in range(world.size):
            torch.testing.assert_close(results[r][c].float(), want, rtol=2e-2, atol=2e-2)
            assert torch.equal(results[r][c], results[0][c])


def gather_doubled(module, world, calls=3, n=40, **options):
    x = [[noise(n, seed=10 * c + r) for r in range(world.size)] for c in range(calls)]

    def host(machine):
        op = module.DoubledGather(machine, n, **options)
        out = []
        for c in range(calls):
            machine.next_call()
            out.append(op(x[c][machine.rank]))
        return out

    results = world.run(host)
    for c in range(calls):
        for r in range(world.size):
            assert torch.equal(results[r][c], 2 * torch.stack(x[c]))


@pytest.mark.parametrize("options", [
    dict(world=2, seed=1), dict(world=4, seed=2, resident=2), dict(world=2, seed=3, resident=1),
    dict(world=2, seed=4, fine=True), dict(world=2, seed=5, slow=0), dict(world=2, log=True),
    *(dict(world=2, policy=p) for p in POLICIES[1:]),
])  # fmt: skip
def test_a_correct_fused_gemm_is_clean(module, options):
    all_reduce(module("fused_gemm"), World(**options))


def test_eight_ranks(module):
    all_reduce(module("fused_gemm"), World(8), M=16, N=16, calls=1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_correct_copied_gather_is_clean(module, policy):
    for seed in range(3):
        gather_doubled(module("copied_gather"), World(3, seed=seed, policy=policy, resident=1 + seed))


def test_a_correct_descriptor_push_is_clean(module):
    push = module("descriptor_push")
    for seed in range(3):
        x = [noise(32, 16, dtype=torch.float16, seed=r) for r in range(3)]
        out = World(3, seed=seed).run(lambda m, x=x: push.shift(m, x[m.rank]))
        assert all(torch.equal(out[r], x[r - 1]) for r in range(3))


def test_the_same_seed_gives_the_same_run(module):
    def steps(seed):
        world = World(2, seed=seed, log=True)
        gather_doubled(module("copied_gather"), world)
        return [(o.rank, o.label, type(e).__name__) for o, e in world.log.ordered()]

    assert steps(7) == steps(7)
    assert steps(7) != steps(8)


def test_launches_are_asynchronous_and_ordered_on_their_stream(module):
    k = module("small_kernels")

    def host(machine):
        x = machine.empty((100,), torch.float32)
        y = machine.empty((100,), torch.float32)
        machine.launch(k.fill, 4, dict(y=x, value=5.0, n=100), dict(BLOCK=32), 4, 1)
        machine.launch(k.add_one, 4, dict(x=x, y=y, n=100), dict(BLOCK=32), 4, 1)
        early = y.isnan().any().item()
        machine.synchronize()
        return early, y.clone()

    results = World(2, policy="hosts-last", resident=2).run(host) + World(2, policy="last-first").run(host)
    want = 6.0 + torch.arange(100) // 32
    assert all(torch.equal(y, want) for _, y in results)
    assert any(early for early, _ in World(1, seed=1).run(host))


def beside(module, flagged, world=1):
    """A kernel that starts beside the one whose number it reads, with or without a flag, and one behind both."""
    k = module("small_kernels")

    def host(machine):
        data = machine.symmetric("data", (1,), torch.float32)
        flag = machine.symmetric("flag", (1,), torch.int32)
        y, z = machine.zeros("y", (1,), torch.float32), machine.empty((1,), torch.float32)
        tables = dict(data_table=data.table, flag_table=flag.table, peer=machine.rank)
        machine.launch(k.fenced_producer, 1, tables, {}, 4, 1)
        if flagged:
            machine.launch(k.acquiring_consumer, 1, dict(data=data.local, flag=flag.local, y=y), {}, 4, 1, early=True)
        else:
            machine.launch(k.add_one, 1, dict(x=data.local, y=y, n=1), dict(BLOCK=1), 4, 1, early=True)
        machine.launch(k.add_one, 1, dict(x=y, y=z, n=1), dict(BLOCK=1), 4, 1)
        machine.synchronize()
        return z.item()

    return World(world, seed=3).run(host)


def test_a_kernel_beside_another_needs_flags_and_the_next_one_waits_for_both(module):
    assert beside(module, True, 2) == [6.0, 6.0]
    with pytest.raises(SimulationFault, match="data"):
        beside(module, False)


def test_unwritten_results_show(module):
    def host(machine):
        return machine.empty((4,), torch.bfloat16), machine.empty((4,), torch.int32)

    floats, integers = World(1).run(host)[0]
    assert floats.isnan().all() and (integers == -1).all()


def test_the_process_group(module):
    def host(machine):
        r = machine.rank
        assert machine.vote(("x", r)) == [("x", i) for i in range(3)]
        machine.barrier()
        total = machine.total(torch.full((2,), 0.1 * (r + 1), dtype=torch.bfloat16))
        gathered = machine.gather(torch.tensor([r, -r], dtype=torch.int64))
        return total, gathered

    for total, gathered in World(3).run(host):
        want = sum(torch.full((2,), 0.1 * (r + 1), dtype=torch.bfloat16).float() for r in range(3)).bfloat16()
        assert torch.equal(total, want)
        assert gathered.tolist() == [[0, 0], [1, -1], [2, -2]]


def test_gather_waits_for_the_kernels_before_it(module):
    k = module("small_kernels")

    def host(machine):
        x = machine.zeros("x", (32,), torch.float32)
        machine.launch(k.fill, 1, dict(y=x, value=float(machine.rank), n=32), dict(BLOCK=32), 4, 1)
        return machine.gather(x)[:, 0].tolist()

    assert World(3, policy="hosts-last").run(host) == [[0.0, 1.0, 2.0]] * 3


def test_ranks_that_disagree_are_named():
    with pytest.raises(CollectiveMismatch, match=r"rank 1 comes to barrier, others are in vote|comes to vote"):
        World(2).run(lambda m: m.vote(1) if m.rank == 0 else m.barrier())
    with pytest.raises(CollectiveMismatch, match="symmetric x"):
        World(2).run(lambda m: m.symmetric("x", (1 + m.rank,), torch.float32))
    with pytest.raises(Deadlock, match=r"host of rank 0: waits in vote \(here: ranks \[0\]\)"):
        World(2).run(lambda m: m.vote(1) if m.rank == 0 else None)


def test_what_a_host_raises_comes_out_with_its_rank():
    def host(machine):
        if machine.rank == 1:
            raise KeyError("mine")
        machine.barrier()

    with pytest.raises(KeyError, match="mine") as caught:
        World(2).run(host)
    assert "rank 1" in caught.value.__notes__[0]


def test_errors_in_kernels_name_program_and_line(module):
    k = module("small_kernels")

    def host(machine):
        machine.launch(k.failing, 4, dict(y=machine.zeros("y", (4,), torch.float32)), {}, 4, 1)

    with pytest.raises(KernelError, match=r"program [23] of failing \(small_kernels.py:\d+\): AssertionError"):
        World(1).run(host)


def test_a_world_runs_again_with_its_memory(module):
    world = World(2)
    kept = world.run(lambda m: m.symmetric("x", (4,), torch.float32))

    def host(machine):
        kept[machine.rank].local.fill_(machine.rank)
        machine.barrier()
        return kept[machine.rank].addresses

    first, second = world.run(host)
    assert first == second == tuple(k.local.data_ptr() for k in kept)
    with pytest.raises(SimulationFault, match="outside its host function"):
        world.machines[0].vote(1)


def test_a_run_starts_after_the_runs_before_it(module):
    k, world = module("small_kernels"), World(2)

    def first(machine):
        x = machine.symmetric("x", (32,), torch.float32)
        y = machine.zeros("y", (32,), torch.float32)
        machine.launch(k.add_one, 1, dict(x=x.local, y=y, n=32), dict(BLOCK=32), 4, 1)
        return x

    kept = world.run(first)

    def second(machine):
        mine, peer = kept[machine.rank], 1 - machine.rank
        machine.copy(mine.addresses[peer], machine.adopt("ones", torch.ones(32)).data_ptr(), 128, "lane")

    world.run(second)
    assert all(k.local.tolist() == [1.0] * 32 for k in kept)


def test_a_wait_for_later_programs_needs_residency(module):
    k = module("small_kernels")

    def host(machine):
        flags = machine.zeros("flags", (4,), torch.int32)
        machine.launch(k.wait_for_later_program, 4, dict(flags=flags), {}, 4, 1)

    World(1).run(host)
    with pytest.raises(Deadlock) as caught:
        World(1, resident=3).run(host)
    text = str(caught.value)
    assert "rank 0, program 2 of wait_for_later_program: polls flags[3] of rank 0, which holds 0" in text
    assert "lane main of rank 0: kernel wait_for_later_program (4 programs, 0 done)" in text


def test_bounded_waits_expire_only_when_everything_is_stuck(module):
    k = module("small_kernels")

    def host(machine):
        flag = machine.zeros("flag", (1,), torch.int32)
        error = machine.pinned("error", (1,), torch.int32)
        machine.launch(k.bounded_wait, 1, dict(flag=flag, error=error, timeout=10**12), {}, 4, 1)
        machine.synchronize()
        return error.item()

    assert World(2, expire=True).run(host) == [1, 1]
    with pytest.raises(Deadlock, match=r"polls flag\[0\] of rank"):
        World(2).run(host)
