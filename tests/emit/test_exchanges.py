"""Small all-reduces, emitted, on simulated ranks: every form gives the bits of `exact` and conforms; hazards of the
words; visibility that is late; ranks that are slow or gone; several instances."""

import numpy as np
import pytest
import torch
from emitted import built, failures, run

from chunkdsl.sim.hooks import Hooks
from chunkdsl.sim.world import World

HEAD = "mesh tp[2] over nvlink\ndim M = 0..11\ndim H = 96\ntensor p : {t}[M, H] sum tp\ntensor r : {t}[M, H]\n"
SUM = HEAD + "op f(p) -> y {{ y = all_reduce(p) with {{ {p} }} }}\n"
CHAIN = HEAD + (
    "tensor g : {t}[H]\nop f(p, r inout, g) -> y, z {{\n    r = r + all_reduce(p) with {{ {p} }}\n"
    "    y = rms_norm(r, g)\n    z = silu(y) * 2 - r\n}}\n"
)
GUESS = "validity = speculative, assume = run_to_completion"
ONE_SHOT = (
    "validity = word", "validity = word, buffers = 1", "validity = word, buffers = 2", "validity = word, buffers = 3",
    "validity = flag",
    "validity = flag, buffers = 1", GUESS,
)  # fmt: skip
TWO_SHOT = ("validity = word", "validity = word, buffers = 1", "buffers = 3", "validity = flag")
SIZES = (11, 2, 0, 1, 5, 11, 3)  # they shrink and grow, with a call without rows


@pytest.mark.parametrize("policy", ONE_SHOT)
def test_one_round_gives_the_right_bits_and_conforms(policy):
    rows = run(SUM.format(t="bf16", p=policy), 3, SIZES, seed=ONE_SHOT.index(policy))
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}


@pytest.mark.parametrize("policy", TWO_SHOT)
def test_two_rounds_give_the_right_bits_and_conform(policy):
    assert failures(run(SUM.format(t="bf16", p=f"algorithm = two_shot, {policy}"), 3, SIZES, seed=1)) == []


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_residual_and_norm_are_fused_and_the_residual_is_updated_in_place(dtype):
    rows = run(CHAIN.format(t=dtype, p="validity = word"), 2, (3, 1, 11), seed=1)
    assert failures(rows) == [] and {"y", "z", "r"} <= {r.check.split(" ")[0] for r in rows}


NARROW = [(SUM, "bf16", 94, "algorithm = two_shot, validity = word"), (CHAIN, "f32", 97, "validity = word"),
          (CHAIN, "f16", 98, "algorithm = two_shot, validity = flag")]  # fmt: skip


@pytest.mark.parametrize("text, dtype, columns, policy", NARROW)
def test_rows_that_are_no_multiple_of_16_bytes_go_one_word_at_a_time(text, dtype, columns, policy):
    made = text.format(t=dtype, p=policy).replace("H = 96", f"H = {columns}")
    assert failures(run(made, 2, (5, 1), seed=1)) == []
    assert all(f.wide == 1 for f in built(made)[1].ops[0].exchange.forms)


@pytest.mark.parametrize("text", [CHAIN, CHAIN.replace("y = rms_norm(r, g)", "y = r * 2")], ids=["rows", "words"])
def test_no_two_lanes_store_one_word(text, monkeypatch):
    """Lanes beyond the end repeat the last words; on a GPU one of them could read what another has updated, and store
    it updated twice. Threads of a program do not race here, so it is the stores that are looked at."""
    twice, plain = [], Hooks.store

    def store(self, addresses, mask, itemsize, bulk):
        stored = np.broadcast_to(addresses, mask.shape)[mask]
        twice.extend([stored.size] if np.unique(stored).size < stored.size else [])
        plain(self, addresses, mask, itemsize, bulk)

    monkeypatch.setattr(Hooks, "store", store)
    assert failures(run(text.format(t="bf16", p="validity = word"), 2, (3, 1, 11), seed=1)) == [] and twice == []


def simulate(text, world, host, **options):
    """`host(operation, machine)` on every rank; its values."""
    _, schedule, module, title = built(text)

    def body(machine):
        instance = getattr(module, title)(machine=machine)
        return host(getattr(instance, schedule.ops[0].name), machine)

    return World(world, **options).run(body)


# -0.0, subnormals of either sign, infinities, NaNs of several payloads, 0.0. Words of all ones: an odd number of halves
# has the two of 0xFFFF in one word, every other time.
HAZARDS = {
    "bf16": (0x8000, 0x0001, 0x8001, 0x007F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0xFFFF, 0x7FFF, 0x0000),
    "f16": (0x8000, 0x0001, 0x8001, 0x03FF, 0x7C00, 0xFC00, 0x7E01, 0xFFFF, 0xFFFF, 0x7FFF, 0x0000),
    "f32": (1 << 31, 1, (1 << 31) + 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 0x7FFFFFFF, 0),
}
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
HAZARDOUS = [("bf16", "validity = word"), ("f16", "buffers = 3"), ("f32", "buffers = 3"),
             ("bf16", "algorithm = two_shot, buffers = 3"), ("f16", "algorithm = two_shot, validity = word"),
             ("f32", "validity = word, buffers = 2")]  # fmt: skip


@pytest.mark.parametrize("dtype, policy", HAZARDOUS)
def test_zeros_of_either_sign_subnormals_and_nans_arrive_as_they_were_sent(dtype, policy):
    """-0.0 + -0.0 is -0.0, a subnormal stays one, and all ones (what an empty word's complement is) is no hole, in
    calls whose sizes shrink and grow."""
    kind = np.uint32 if dtype == "f32" else np.uint16
    bits = torch.from_numpy(np.array(HAZARDS[dtype], kind).view(np.int32 if dtype == "f32" else np.int16))

    def host(f, machine):
        made = []
        for rows in (11, 1, 11):
            p = bits.repeat(rows * 96 // len(bits) + 1)[: rows * 96].view(TYPES[dtype]).reshape(rows, 96)
            other = p if machine.rank == 0 else torch.where(p.isnan(), p, torch.zeros_like(p) * -1.0)
            y = f(other.clone())
            machine.synchronize()
            f.check()
            made.append((p, y.clone()))
        return made

    for results in simulate(SUM.format(t=dtype, p=policy), 2, host, seed=3):
        for p, y in results:
            assert ((y.view(bits.dtype) == p.view(bits.dtype)) | (p.isnan() & y.isnan())).all()


def wrong_calls(text, seed, calls=6, **options):
    """How many results on all ranks differ from `exact`."""

    def host(f, machine):
        inputs = []
        for i in range(calls):
            torch.manual_seed(10 * i + machine.rank)
            inputs.append(torch.randn(3 + i % 2, 96).bfloat16())
        fused = [f(x) for x in inputs]
        machine.synchronize()
        f.check()
        exact = [f.exact(x) for x in inputs]
        machine.synchronize()
        return sum(not torch.equal(y, z) for y, z in zip(fused, exact, strict=True))

    return sum(simulate(text, 2, host, seed=seed, **options))


SEEDS = range(4)


def test_payload_first_and_flag_second_fails_where_nothing_makes_programs_run_to_completion():
    """SiFAR's validation: a stale payload passes under a new flag, in some of a few seeds."""
    text = SUM.format(t="bf16", p=GUESS)
    assert any(wrong_calls(text, seed, delay=True) for seed in SEEDS)
    assert not any(wrong_calls(text, seed, hold=True) for seed in SEEDS)


@pytest.mark.parametrize("policy", ["validity = word", "buffers = 3", "validity = flag", "algorithm = two_shot"])
def test_the_sound_forms_never_fail_when_stores_are_seen_late_and_out_of_order(policy):
    text = SUM.format(t="bf16", p=policy)
    assert not any(wrong_calls(text, seed, delay=True) for seed in SEEDS)


def test_an_audit_finds_what_speculation_missed_and_counts_it():
    text = SUM.format(t="bf16", p=GUESS)

    def host(f, machine):
        f.audit = True
        wrong = 0
        for i in range(8):
            torch.manual_seed(10 * i + machine.rank)
            x = torch.randn(5, 96).bfloat16()
            y = f(x)
            z = f.exact(x)
            machine.synchronize()
            wrong += not torch.equal(y, z)
        return wrong, f.counters()

    found = [r for seed in SEEDS for r in simulate(text, 2, host, seed=seed, delay=True)]
    assert all(wrong == 0 and c["blocks"] == 16 for wrong, c in found)  # an audited call uses what it acquired
    assert any(c["mis_speculations"] for _, c in found) and any(c["disagreements"] for _, c in found)


def test_a_slow_rank_and_two_instances():
    _, _, module, title = built(SUM.format(t="bf16", p="validity = word"))

    def host(machine):
        a, b = (getattr(module, title)(machine=machine) for _ in range(2))
        x = [torch.full((3, 96), float(1 + machine.rank + i)).bfloat16() for i in range(4)]
        got = [(a if i % 2 else b).f(t) for i, t in enumerate(x)]
        machine.synchronize()
        return [y[0, 0].item() for y in got]

    assert World(3, seed=2, slow=1).run(host) == [[6.0, 9.0, 12.0, 15.0]] * 3


DYING = ["validity = word", "buffers = 3", "validity = flag", "algorithm = two_shot, validity = word",
         "algorithm = two_shot, buffers = 3", "algorithm = two_shot, validity = flag"]  # fmt: skip


@pytest.mark.parametrize("world, seed", [(3, 0), (4, 11)])
@pytest.mark.parametrize("policy", DYING)
def test_no_rank_goes_on_with_wrong_numbers_when_another_dies(policy, world, seed):
    """Also those that are told by a peer and not by their own clock, and without a `check` on the way."""

    def host(f, machine):
        f(torch.ones(3, 96).bfloat16())
        machine.synchronize()
        if machine.rank == world - 1:
            return []
        made, broken = [], None
        for i in range(3):
            try:
                y = f(torch.ones(3, 96).bfloat16())
                machine.synchronize()
                if broken is None and not (y == world).all():
                    broken = i
            except RuntimeError as error:
                made.append((i, str(error)))
        return [broken, *made]

    for broken, *told in simulate(SUM.format(t="bf16", p=policy), world, host, seed=seed, expire=True)[:-1]:
        assert broken == 0, "the call in which the rank is missing has no result"
        assert [i for i, _ in told] == [1, 2] and all("f is dead on rank" in said for _, said in told)


@pytest.mark.parametrize("policy", ["validity = word", "buffers = 3", "validity = flag"])
def test_a_rank_that_dies_is_named_and_later_waits_return(policy):
    def host(f, machine):
        f(torch.ones(3, 96).bfloat16())
        machine.synchronize()
        if machine.rank == 1:
            return "gone"
        said = []
        for _ in range(2):
            try:
                f(torch.ones(3, 96).bfloat16())
                machine.synchronize()
                f.check()
            except RuntimeError as error:
                said.append(str(error))
        return said

    text = SUM.format(t="bf16", p=policy)
    said, gone = simulate(text, 2, host, seed=1, expire=True)
    assert gone == "gone" and len(said) == 2
    assert "small.chunk:6 f: wait for the words of rank 1, call 2" in said[0]
