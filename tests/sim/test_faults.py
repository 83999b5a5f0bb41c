"""Planted faults: each module that is clean in test_world is changed in one place and the right fault must come."""

from pathlib import Path

import pytest
import torch

from chunkdsl.sim import (
    BulkStoreInFlight,
    Deadlock,
    MissingProxyFence,
    OutOfBounds,
    PrivateMemory,
    Race,
    UnfencedRelease,
    World,
)

SEEDS = range(3)


def noise(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run_gemm(module, world):
    def host(machine):
        op = module.GemmAllReduce(machine, 16, 32)
        b = noise(16, 32, seed=9)
        return [op(noise(16, 16, seed=machine.rank), b) for _ in range(2)]

    world.run(host)


PUSH = "        tl.store(stage + slot * M * N + where, acc, mask=inside)  # push\n"
BARRIER = "        tl.debug_barrier()  # barrier\n"
SIGNAL = '        tl.atomic_xchg(flag, epoch, sem="release", scope="sys")  # signal\n'
WAIT = "        wait_for(flags + source * tiles + tile, epoch)  # wait\n"
SLOT = "slot = parity * W + rank  # slot"


@pytest.mark.parametrize("change, fault, text", [
    ((SIGNAL, SIGNAL.replace("release", "relaxed")), Race, "race: .*stage of rank"),
    ((SIGNAL, SIGNAL.replace("sys", "gpu")), Race, "gpu scope does not reach another rank"),
    ((WAIT, ""), Race, "race: .*stage of rank"),
    ((SLOT, "slot = parity * W"), Race, "makes a write of stage"),
    (("parity = epoch % 2", "parity = 0 * epoch"), Race, "stage"),
    ((SLOT, "slot = 2 * W + rank"), OutOfBounds, "after the end of stage of rank"),
    ((BARRIER, ""), UnfencedRelease, r"unfenced release: .* flags of rank . \(.*\) with no tl.debug_barrier"),
    ((SIGNAL, SIGNAL.replace("epoch", "tl.where(tile == 1, 0, epoch)")), Deadlock, r"polls flags\[[13]\] of rank"),
    ((SIGNAL, SIGNAL.replace("        tl", "        if step > 0:\n            tl")), Deadlock, "polls flags"),
    (("* M * N + where, mask=inside, other=0.0)", "* M * N + where + N, mask=inside, other=0.0)"),
     (Race, OutOfBounds), "stage"),
    (("def __call__(self, a, b):\n        self.epoch += 1", "def __call__(self, a, b):\n        self.epoch = 2"),
     Race, "stage"),
])  # fmt: skip
def test_faults_of_a_fused_gemm(module, change, fault, text):
    mutant = module("fused_gemm", change)
    for seed in SEEDS:
        with pytest.raises(fault, match=text) as caught:
            run_gemm(mutant, World(2, seed=seed))
        assert "program" in str(caught.value) and "rank" in str(caught.value)


def test_an_early_signal_is_a_race(module):
    early = SIGNAL.replace("flag,", "flag0,").replace("        tl", "        tl", 1)
    pointer = "        flag0 = tl.load(flag_table + peer).to(tl.pointer_type(tl.int32)) + rank * tiles + tile\n"
    mutant = module("fused_gemm", (PUSH, pointer + early + PUSH), (SIGNAL, ""))
    for seed in SEEDS:
        with pytest.raises((Race, UnfencedRelease), match=r"stage|flags"):
            run_gemm(mutant, World(2, seed=seed))


def test_faults_name_the_line_of_both_ends(module):
    mutant = module("fused_gemm", (WAIT, ""))
    lines = Path(mutant.__file__).read_text().splitlines()
    with pytest.raises(Race) as caught:
        run_gemm(mutant, World(2))
    named = [lines[int(part.split(")")[0]) - 1] for part in str(caught.value).split("fused_gemm_mutant.py:")[1:]]
    assert len(named) == 2
    assert any("# push" in line for line in named) and any("tl.load(mine" in line for line in named)


def run_gather(module, world, **options):
    def host(machine):
        op = module.DoubledGather(machine, 40, **options)
        return [op(noise(40, seed=machine.rank)) for _ in range(3)]

    world.run(host)


def test_faults_of_a_copied_gather(module):
    good = module("copied_gather")
    for seed in SEEDS:
        with pytest.raises(Race, match=r"copy lane to 1 .*gathered|gathered.*copy lane to 1"):
            run_gather(good, World(2, seed=seed), flag_first=True)
        with pytest.raises(Race, match=r"(?=.*copy lane)(?=.*(gathered|epoch))"):
            run_gather(good, World(2, seed=seed), fork=False)
        with pytest.raises(Race, match=r"program 0 of begin .*copy lane|copy lane .*program 0 of begin"):
            run_gather(good, World(2, seed=seed, policy="copies-last"), join=False)
        with pytest.raises(Deadlock, match=r"polls flags\[[01]\] of rank"):
            run_gather(good, World(2, seed=seed), signal=False)


def test_a_gather_without_entry_barrier_overwrites_what_is_read(module):
    poll = '        while seen - epoch < 0:\n            seen = tl.atomic_add(ready'
    mutant = module("copied_gather", (poll, poll.replace("epoch < 0", "epoch < -9")))
    with pytest.raises(Race, match="gathered"):
        for seed in range(5):
            run_gather(mutant, World(3, seed=seed))


def run_push(module, world):
    world.run(lambda m: module.shift(m, noise(32, 16, dtype=torch.float16, seed=m.rank)))


@pytest.mark.parametrize("change, fault, text", [
    (("    bulk_wait()  # bulk wait\n", ""), BulkStoreInFlight, "bulk store in flight: .*wait_group 0"),
    (("wait_group 0; mov", "wait_group.read 0; mov"), BulkStoreInFlight, "bulk store in flight"),
    (("    proxy_fence()  # proxy fence\n", ""), MissingProxyFence, "descriptor load .*inbox of rank .*written by"),
    (("    tl.debug_barrier()  # barrier\n", ""), UnfencedRelease, "after the descriptor store"),
    (("    bulk_wait()  # bulk wait\n    tl.debug_barrier()  # barrier\n",
      "    tl.debug_barrier()\n    bulk_wait()\n"), UnfencedRelease, "after the descriptor store"),
])  # fmt: skip
def test_faults_of_a_descriptor_push(module, change, fault, text):
    mutant = module("descriptor_push", change)
    for seed in SEEDS:
        with pytest.raises(fault, match=text):
            run_push(mutant, World(2, seed=seed))
    if fault is not UnfencedRelease:
        run_push(mutant, World(2, tma=False))


def test_private_memory_of_a_peer(module):
    k = module("small_kernels")

    def host(machine):
        secret = machine.zeros("secret", (4,), torch.float32)
        table = torch.tensor(machine.vote(secret.data_ptr()))
        machine.launch(k.store_to_peer, 1, dict(table=table, peer=1 - machine.rank), {}, 4, 1)

    with pytest.raises(PrivateMemory, match=r"store by rank \d.*touches secret of rank \d, which is not symmetric"):
        World(2).run(host)

    def copying(machine):
        secret = machine.zeros("secret", (4,), torch.float32)
        machine.copy(machine.vote(secret.data_ptr())[1 - machine.rank], secret.data_ptr(), 16, "lane")

    with pytest.raises(PrivateMemory, match="copy lane lane, destination: touches secret"):
        World(2).run(copying)


def test_bounds_of_stores_copies_and_arguments(module):
    k = module("small_kernels")

    def store(machine):
        y = machine.zeros("y", (40,), torch.float32)
        machine.launch(k.fill, 2, dict(y=y, value=1.0, n=41), dict(BLOCK=32), 4, 1)

    def copy(machine):
        y = machine.zeros("y", (40,), torch.float32)
        machine.copy(y.data_ptr(), machine.zeros("z", (10,), torch.float32).data_ptr(), 44, "lane")

    def unknown(machine):
        x = torch.zeros(4)
        machine.copy(machine.zeros("y", (4,), torch.float32).data_ptr(), x.data_ptr(), 16, "lane")

    with pytest.raises(OutOfBounds, match=r"program 1 of fill .*1 elements.* 0 bytes after the end of y"):
        World(1).run(store)
    with pytest.raises(OutOfBounds, match="source: 44 bytes at"):
        World(1).run(copy)
    with pytest.raises(OutOfBounds, match="source: 16 bytes at"):
        World(1).run(unknown)

    def adopted(machine):
        y, x = machine.zeros("y", (4,), torch.float32), machine.adopt("x", torch.ones(4))
        machine.copy(y.data_ptr(), x.data_ptr(), 16, "lane")
        machine.synchronize()
        return y.tolist()

    assert World(1).run(adopted) == [[1.0] * 4]


def test_two_lanes_that_write_the_same_bytes_race():
    def host(machine, join):
        a, b = (machine.zeros(n, (64,), torch.float32) for n in "ab")
        machine.copy(a.data_ptr(), b.data_ptr(), 256, "one")
        if join:
            machine.join("one")
            machine.fork("two")
        machine.copy(a.data_ptr() + 64, b.data_ptr(), 64, "two")

    for seed in SEEDS:
        World(1, seed=seed).run(lambda m: host(m, True))
        with pytest.raises(Race, match=r"copy lane (one|two) makes a write of a of rank 0"):
            World(1, seed=seed).run(lambda m: host(m, False))


def handed_on(module, step, scope="gpu"):
    k = module("small_kernels")

    def host(machine):
        flags = [machine.zeros(n, (1,), torch.int32) for n in ("flag1", "flag2")]
        a, y = machine.zeros("a", (1,), torch.float32), machine.zeros("y", (1,), torch.float32)
        arguments = dict(a=a, flag1=flags[0], flag2=flags[1], y=y)
        machine.launch(k.handed_on, 3, arguments, dict(STEP=step), 4, 1)
        machine.synchronize()
        return y.item()

    return host


def test_order_is_transitive_through_mixed_scopes(module):
    for seed in SEEDS:
        assert World(1, seed=seed).run(handed_on(module, "acq_rel")) == [3.0]
        with pytest.raises(Race, match="read of a of rank 0"):
            World(1, seed=seed).run(handed_on(module, "relaxed"))


def test_a_fence_makes_a_relaxed_signal_a_release(module):
    def run(k, seed):
        def host(machine):
            data = machine.symmetric("data", (1,), torch.float32)
            flag = machine.symmetric("flag", (1,), torch.int32)
            y = machine.zeros("y", (1,), torch.float32)
            if machine.rank == 0:
                arguments = dict(data_table=data.table, flag_table=flag.table, peer=1)
                machine.launch(k.fenced_producer, 1, arguments, {}, 4, 1)
            else:
                machine.launch(k.acquiring_consumer, 1, dict(data=data.local, flag=flag.local, y=y), {}, 4, 1)
            machine.synchronize()
            return y.item()

        return World(2, seed=seed).run(host)

    narrow = ('"fence.acq_rel.sys;', '"fence.acq_rel.gpu;')
    assert run(module("small_kernels"), 0) == [0.0, 5.0]
    with pytest.raises(Race, match="data of rank 1"):
        run(module("small_kernels", narrow), 0)


def test_a_volatile_wait_that_nobody_ends(module):
    k = module("small_kernels")

    def host(machine):
        flag, y = machine.zeros("flag", (2,), torch.int32), machine.zeros("y", (1,), torch.float32)
        machine.launch(k.volatile_wait, 1, dict(flag=flag[1:], y=y), {}, 4, 1)

    with pytest.raises(Deadlock, match=r"polls flag\[1\] of rank 0, which holds 0"):
        World(1).run(host)
