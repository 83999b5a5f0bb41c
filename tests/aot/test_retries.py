"""The lint of loops that read one place until it changes: on a kernel of every kind of word, and on faults in it."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "emit"))
from emitted import built

from chunkdsl.aot.lint_retry import stale_retries
from chunkdsl.aot.record import RecordingMachine
from chunkdsl.aot.targets import compile_kernel
from chunkdsl.verify.compile import is_fused

TEXT = """mesh tp[2] over nvlink
dim M = 0..64
tensor p : bf16[M, 1024] sum tp
op f(p) -> y {{ y = all_reduce(p) with {{ {p} }} }}
"""


@pytest.fixture(scope="module", params=["validity = word", "validity = flag", "buffers = 3"])
def ptx(request):
    _, _, module, title = built(TEXT.format(p=request.param))
    machine = RecordingMachine(rank=0, world=2, target="sm_90")
    getattr(module, title)(machine=machine)
    return request.param, compile_kernel([u for u in machine.uses if is_fused(u)][-1], "sm_90").ptx


def test_what_is_emitted_retries_no_weak_load(ptx):
    assert stale_retries(ptx[1]) == []


@pytest.mark.parametrize("faulty", ["ld.global", "ld.global.nc", "ld.global.ca", "ld.relaxed.gpu.global"])
def test_a_weak_cached_or_narrow_load_in_a_retry_is_found(ptx, faulty):
    policy, text = ptx
    strong = "ld.global.sys.acquire" if "flag" in policy else "ld.relaxed.sys.global"
    wrong = text.replace(strong, faulty)
    assert wrong != text
    found = stale_retries(wrong)
    assert found and all(re.match(faulty.replace(".", r"\."), f.excerpt.split(" ", 1)[-1].strip()) or
                         f.excerpt.startswith(faulty) for f in found)  # fmt: skip


def test_a_loop_that_walks_a_table_is_no_retry():
    """The address changes from one round to the next; and a value that decides nothing may be read weakly."""
    walk = """.visible .entry k(.param .u64 a)
{
L: ld.global.u32 %r1, [%rd1]; add.u64 %rd1, %rd1, 4; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;
M: ld.global.u32 %r2, [%rd2]; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 9; @%p2 bra M;
ret;
}
"""
    assert stale_retries(walk) == []
    assert [f.line for f in stale_retries(walk.replace("add.u64 %rd1, %rd1, 4;", ""))] == [3]


def test_what_another_thread_reads_of_shared_memory_is_what_was_put_there_last():
    """A ticket, by which one thread tells all others which tile is next, is not decided by what a tile reads."""
    text = """.visible .entry k(){
mov.b32 %r9, global_smem;
$L__1:
ld.global.b32 %r1, [%rd1];
st.shared.b32 [%r9 + 0], %r1;
bar.sync 0;
atom.global.gpu.relaxed.add.u32 %r2, [%rd2], 1;
@%p2 st.shared.b32 [%r9 + 0], %r2;
bar.sync 0;
ld.shared.b32 %r3, [global_smem];
setp.lt.s32 %p1, %r3, %r4;
@%p1 bra $L__1;
ret;
}"""
    assert stale_retries(text) == []
    elsewhere = text.replace("@%p2 st.shared.b32 [%r9 + 0], %r2;", "@%p2 st.shared.b32 [%r8 + 0], %r2;")
    for wrong in (elsewhere, text.replace("[%r9 + 0], %r2", "[%r9 + 0], %r1")):
        assert [f.line for f in stale_retries(wrong)] == [4]


def test_a_stale_retry_inside_the_loop_that_hands_out_partitions_is_found():
    """Warps of a specialised kernel get one partition after the other in a loop that sets their registers: the load
    that tells them which is no retry, what a partition waits for is."""
    text = """.visible .entry k(){
$L__1:
bar.sync 1;
ld.global.b32 %r1, [%rd1];
setmaxnreg.dec.sync.aligned.u32 40;
$L__2:
ld.relaxed.sys.global.b32 %r2, [%rd2];
setp.ne.s32 %p2, %r2, %r4;
@%p2 bra $L__2;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra $L__1;
ret;
}"""
    assert stale_retries(text) == []
    assert [f.line for f in stale_retries(text.replace("ld.relaxed.sys.global", "ld.global"))] == [7]
    plain = text.replace("setmaxnreg.dec.sync.aligned.u32 40;", "")
    assert [f.line for f in stale_retries(plain)] == [4], "in a loop of another kernel it is one"
