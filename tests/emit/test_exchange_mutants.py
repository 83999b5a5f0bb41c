"""Faults planted into the emitted kernel of a small all-reduce: each is caught, by what the test says."""

import importlib.util
import sys
from pathlib import Path

import pytest
from emitted import built
from test_exchanges import SUM

from chunkdsl.verify.simulate import run_op

SIZES = (11, 2, 1, 8, 11, 3, 11)
MUTANTS = [
    ("always the same slot", "validity = word", "else epoch & (SLOTS - 1)", "else epoch * 0", "conformance"),
    ("a peer is left out", "validity = word", "for k in tl.static_range(W - 1):\n                    if FORM == 0:",
     "for k in tl.static_range(W - 2):\n                    if FORM == 0:", "simulation"),
    ("another rank's row", "validity = word", "at = (slot * W + rank)", "at = (slot * W + (rank + 1) % W)",
     "simulation"),
    ("programs without a block keep their epoch", "validity = word", "mask=others >= tl.num_programs(0)",
     "mask=others >= PROGRAMS", "simulation"),
    ("an epoch that stands still", "validity = word", "keep_epoch(epochs, epoch, PROGRAMS)",
     "keep_epoch(epochs, epoch * 0, PROGRAMS)", "conformance"),
    ("the wrong slot is emptied", "buffers = 3", "empty_marks(peers[W - 1], (epoch + 2) % 3",
     "empty_marks(peers[W - 1], (epoch + 1) % 3", "simulation"),
    ("too few words are emptied", "buffers = 3", "before = tl.load(epochs + PROGRAMS + (epoch + 2) % 3)",
     "before = tl.minimum(tl.load(epochs + PROGRAMS + (epoch + 2) % 3), count)", "conformance"),
    ("four words are judged by three", "buffers = 3", "setp.ne.and.u32 p, $3, 0, p;", "", "simulation"),
    ("two words are judged by one", "validity = word, buffers = 2", "setp.eq.and.u32 p, f, $7, p;", "", "simulation"),
    ("two words change places", "validity = word, buffers = 2", "st.relaxed.sys.global.v2.u64 [$1], {$2, $3};",
     "st.relaxed.sys.global.v2.u64 [$1], {$3, $2};", "y"),
    ("neighbours that are torn apart at the end", "buffers = 3", "tl.minimum(word, count - WIDE + lanes % WIDE)",
     "tl.minimum(word, count - 1)", "simulation"),
    ("one place for all neighbours", "buffers = 3", "a, b, c, d = in_four(~word)", "a, c, b, d = in_four(~word)",
     "y"),
    ("no wait for flags", "validity = flag", "if FORM == 2:\n                    for k in tl.static_range(W - 1):",
     "if FORM == 2:\n                    for k in tl.static_range(0):", "simulation"),
    ("a flag before the payload", "validity = flag", "tl.debug_barrier()\n    tl.atomic_xchg(flag, epoch",
     "tl.atomic_xchg(flag, epoch", "simulation"),
    ("no closing wait", "validity = flag, buffers = 1",
     "                        ok = ok & wait_flag(\n                            closed + from_rank",
     "                        ok = ok | wait_flag(\n                            arrived + from_rank", "simulation"),
    ("not in rank order", "validity = word", "(slot * W + source).to(tl.int64) * cap + word",
     "(slot * W + (source + rank) % W).to(tl.int64) * cap + word", "simulation"),
    ("the own addend is forgotten", "validity = word", "mine = lanes * 0 + (rank == source).to(tl.int32)",
     "own = own * 0\n                    mine = lanes * 0 + (rank == source).to(tl.int32)", "y"),
]  # fmt: skip


def planted(policy, old, new):
    program, schedule, module, title = built(SUM.format(t="bf16", p=policy))
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert old in text, "the fault has no place"
    path = Path(module.__file__).with_name(f"mutant_{abs(hash((old, new))):x}.py")
    path.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    sys.modules[path.stem] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    calls = [{"M": m} for m in SIZES]
    return run_op(made, title, schedule, schedule.ops[0], program.ops[0], 3, 1, calls, pointers=False)


@pytest.mark.parametrize("policy, old, new, by", [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_a_fault_is_caught(policy, old, new, by):
    caught = [r.check.split(" ")[0] for r in planted(policy, old, new) if not r.passed]
    assert caught and caught[0] == by, caught
