"""Each lint finds its fault in what the compiler made of a small kernel, and is silent on the mended kernel."""

import dataclasses

import pytest

from chunkdsl.aot import lint_source
from chunkdsl.aot.lints import LINTS, lint
from chunkdsl.parsing import parse_python

# lint, fault, mended: each kernel as (name, target, options); several rows where a fault has several faces
CASES = [
    (
        "load-before-wait",
        ("dot_loop", "sm_90", {"FORM": "guarded", "BLOCK": 64}),
        ("dot_loop", "sm_90", {"FORM": "chunks", "BLOCK": 64}),
    ),
    (
        "load-before-wait",
        ("dot_loop", "sm_80", {"FORM": "guarded", "BLOCK": 64}),
        ("dot_loop", "sm_80", {"FORM": "chunks", "BLOCK": 64}),
    ),
    (
        "load-before-wait",
        ("dot_loop", "gfx942", {"FORM": "guarded", "BLOCK": 64}),
        ("dot_loop", "gfx942", {"FORM": "chunks", "BLOCK": 64}),
    ),
    (
        "wait-in-dot-loop",
        ("dot_loop", "sm_90", {"FORM": "guarded", "BLOCK": 64}),
        ("dot_loop", "sm_100", {"FORM": "chunks", "BLOCK": 64}),
    ),
    (
        "gathered-load-before-wait",
        ("gathered_loop", "sm_90", {"FORM": "guarded"}),
        ("gathered_loop", "sm_90", {"FORM": "turns"}),
    ),
    (
        "gathered-load-before-wait",
        ("gathered_loop", "sm_90", {"FORM": "ahead"}),
        ("gathered_loop", "sm_80", {"FORM": "turns"}),
    ),
    (
        "dot-loop-not-pipelined",
        ("dot_loop", "sm_90", {"FORM": "while", "BLOCK": 64}),
        ("dot_loop", "sm_90", {"FORM": "plain", "BLOCK": 64}),
    ),
    (
        "dot-loop-not-pipelined",
        ("dot_loop", "sm_80", {"FORM": "barrier", "BLOCK": 64}),
        ("dot_loop", "sm_80", {"FORM": "plain", "BLOCK": 64}),
    ),
    (
        "dot-loop-not-pipelined",
        ("tma_dot_loop", "sm_90", {"FAULT": True, "FLAT": True}),
        ("tma_dot_loop", "sm_90", {"FAULT": False, "FLAT": True}),
    ),
    (
        "old-tensor-core-path",
        ("dot_loop", "sm_90", {"FORM": "plain", "warps": 2, "BLOCK": 64}),
        ("dot_loop", "sm_90", {"FORM": "plain", "BLOCK": 64}),
    ),
    (
        "release-without-barrier",
        ("publish", "sm_90", {"FORM": "bare"}),
        ("publish", "sm_90", {"FORM": "barrier"}),
    ),
    (
        "release-without-barrier",
        ("publish", "sm_90", {"FORM": "branch"}),
        ("publish", "sm_90", {"FORM": "local"}),
    ),
    (
        "release-without-barrier",
        ("publish", "sm_90", {"FORM": "loop"}),
        ("publish", "sm_80", {"FORM": "barrier"}),
    ),
    *[
        (lint, (kernel, "gfx942", {"FORM": fault}), (kernel, "gfx942", {"FORM": mended}))
        for lint, kernel, fault, mended in (
            ("release-without-barrier-amd", "publish", "bare", "barrier"),
            ("release-without-barrier-amd", "publish", "branch", "claim"),
            ("release-before-write-back-amd", "publish", "loop", "barrier"),
            ("flag-at-narrow-scope-amd", "publish", "narrow", "local"),
            ("flag-at-narrow-scope-amd", "consume", "gpu", "right"),
            ("load-without-invalidate-amd", "consume", "relaxed", "right"),
            ("acquire-by-one-wave-amd", "consume", "dropped", "right"),
        )
    ],
    (
        "access-before-early-start",
        ("start", "sm_90", {"FORM": "late"}),
        ("start", "sm_90", {"FORM": "early"}),
    ),
    (
        "access-before-early-start",
        ("start", "sm_90", {"FORM": "admits"}),
        ("start", "sm_90", {"FORM": "early"}),
    ),
    (
        "end-before-kernel-ahead",
        ("beside", "sm_90", {"FORM": "some"}),
        ("beside", "sm_90", {"FORM": "always"}),
    ),
    (
        "release-over-bulk-store",
        ("publish_tma", "sm_90", {"WAIT": "read"}),
        ("publish_tma", "sm_90", {"WAIT": "all"}),
    ),
    (
        "release-over-bulk-store",
        ("publish_tma", "sm_90", {"WAIT": "none"}),
        ("publish_tma", "sm_100", {"WAIT": "all"}),
    ),
    (
        "tma-load-without-proxy-fence",
        ("tma_dot_loop", "sm_90", {"FAULT": True, "FLAT": False}),
        ("tma_dot_loop", "sm_90", {"FAULT": False, "FLAT": False}),
    ),
    (
        "acquire-by-one-thread",
        ("consume", "sm_90", {"FORM": "one_thread"}),
        ("consume", "sm_90", {"FORM": "one_thread_barrier"}),
    ),
    (
        "unused-acquire",
        ("consume", "sm_90", {"FORM": "dropped"}),
        ("consume", "sm_90", {"FORM": "right"}),
    ),
    (
        "cached-load-after-wait",
        ("consume", "sm_90", {"FORM": "cached"}),
        ("consume", "sm_90", {"FORM": "hinted"}),
    ),
    (
        "flag-scope",
        ("consume", "sm_90", {"FORM": "gpu"}),
        ("consume", "sm_90", {"FORM": "right"}),
    ),
    (
        "flag-scope",
        ("publish", "sm_90", {"FORM": "narrow"}),
        ("publish", "sm_90", {"FORM": "local"}),
    ),
    (
        "stale-retry",
        ("consume", "sm_90", {"FORM": "gpu"}),
        ("consume", "sm_90", {"FORM": "right"}),
    ),
    (
        "relaxed-poll",
        ("consume", "sm_90", {"FORM": "relaxed"}),
        ("consume", "sm_90", {"FORM": "right"}),
    ),
    (
        "relaxed-poll",
        ("consume", "sm_90", {"FORM": "volatile"}),
        ("consume", "sm_90", {"FORM": "ticket"}),
    ),
    (
        "relaxed-poll",
        ("consume", "sm_90", {"FORM": "carried"}),
        ("consume", "sm_90", {"FORM": "table"}),
    ),
    (
        "asm-in-every-thread",
        ("count", "sm_90", {"FORM": "scalar"}),
        ("count", "sm_90", {"FORM": "one"}),
    ),
    (
        "asm-in-every-thread",
        ("count", "sm_90", {"FORM": "short"}),
        ("count", "sm_90", {"FORM": "long"}),
    ),
    (
        "spills",
        ("hold", "sm_90", {"SIZE": 8192, "warps": 1}),
        ("hold", "sm_90", {"SIZE": 8192, "warps": 8}),
    ),
    (
        "too-much-shared-memory",
        ("dot_loop", "sm_90", {"FORM": "plain", "stages": 16, "BLOCK": 64}),
        ("dot_loop", "sm_90", {"FORM": "plain", "BLOCK": 64}),
    ),
    (
        "narrow-access",
        ("copy_rows", "sm_90", {"FORM": "bare"}),
        ("copy_rows", "sm_90", {"FORM": "marked"}),
    ),
    (
        "narrow-access",
        ("copy_rows", "sm_90", {"FORM": "mask"}),
        ("copy_rows", "sm_80", {"FORM": "marked"}),
    ),
    (
        "narrow-access",
        ("copy_rows", "sm_90", {"FORM": "table"}),
        ("copy_rows", "sm_100", {"FORM": "marked"}),
    ),
    (
        "offset-in-32-bits",
        ("copy_rows", "sm_80", {"FORM": "i32"}),
        ("copy_rows", "sm_90", {"FORM": "index"}),
    ),
    (
        "flag-scope",
        ("publish", "sm_80", {"FORM": "narrow"}),
        ("publish", "sm_90", {"FORM": "claim"}),
    ),
    (
        "offset-in-32-bits",
        ("copy_rows", "sm_90", {"FORM": "i32"}),
        ("copy_rows", "sm_90", {"FORM": "marked"}),
    ),
    (
        "offset-in-32-bits",
        ("copy_rows", "sm_90", {"FORM": "late"}),
        ("copy_rows", "sm_90", {"FORM": "local"}),
    ),
]
SOURCES = [
    (
        "loop-carried-copy",
        "prev = seen\n    for k in range(n):\n        use(prev)\n        prev = seen\n        seen = seen + k",
        "prev = -1\n    for k in range(n):\n        use(prev)\n        prev = seen\n        seen = seen + k",
    ),
    (
        "loop-carried-copy",
        "a = seen\n    b = a\n    while b < n:\n        b = seen\n        seen += 1",
        "a = seen\n    b = a\n    while b < n:\n        seen += 1\n        b = seen",
    ),
    (
        "carried-bound",
        "begin = n\n    while seen < n:\n        for k in range(begin, n):\n            use(k)\n        begin = 0",
        "begin = n\n    while seen < n:\n        for k in range(begin, n):\n            use(k)\n        begin = seen",
    ),
    (
        "flattened-loop-carries",
        "p = -1\n    q = -1\n    for k in tl.range(0, n, flatten=True):\n        p = k\n        q = k // 2",
        "p = -1\n    for k in tl.range(0, n, flatten=True):\n        p = k",
    ),
    (
        "flattened-loop-carries",
        "for k in tl.range(0, n, flatten=True):\n        tl.debug_barrier()",
        "for k in tl.range(0, n, flatten=False):\n        tl.debug_barrier()",
    ),
]


@pytest.mark.parametrize(("name", "fault", "mended"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_finds_the_fault_and_not_the_mend(build, name, fault, mended):
    rule = LINTS[name]

    def found(case):
        kernel, target, options = case
        compiled = build(kernel, target, **options)
        subject = compiled if rule.text == "compiled" else getattr(compiled, rule.text)
        return rule.run(subject), subject

    findings, text = found(fault)
    assert findings, "the fault is not seen"
    for finding in findings:
        assert finding.lint == name and finding.message
        if rule.text != "compiled":
            assert finding.excerpt.split()[-1].rstrip(";") in text.splitlines()[finding.line - 1]
    assert found(mended)[0] == []


@pytest.mark.parametrize(("name", "fault", "mended"), SOURCES)
def test_source_lints(name, fault, mended):
    head = "@triton.jit(do_not_specialize=['n'])\ndef kernel(x, n):\n    seen = 0\n    "
    found = LINTS[name].run(head + fault + "\n")
    assert found and all(f.excerpt in head + fault for f in found)
    assert LINTS[name].run(head + mended + "\n") == []
    plain = head.replace("@triton.jit(do_not_specialize=['n'])\n", "")
    assert LINTS[name].run(plain + fault + "\n") == [], "ordinary Python functions may do as they like"


def test_every_lint_has_a_fault_and_a_reason():
    assert {c[0] for c in CASES} | {s[0] for s in SOURCES} == set(LINTS)
    assert all(len(rule.why) > 60 for rule in LINTS.values())


# The compiler's wait (lint_amdgcn.py), and the last poll of the word that ends a wait early: it guards no data.
IN_REFERENCE_ON_AMD = frozenset({"release-before-write-back-amd", "acquire-by-one-wave-amd"})
VARIANTS = [("sm_80", False), ("sm_90", False), ("sm_90", True), ("sm_100", False), ("sm_100", True), ("gfx942", False)]


@pytest.mark.parametrize(("target", "tma"), VARIANTS)
def test_reference_kernel_is_clean_and_pipelined(reference, target, tma):
    from chunkdsl.aot.lint_pipeline import dot_loops
    from chunkdsl.aot.record import RecordingMachine, blank
    from chunkdsl.aot.targets import compile_kernel
    from chunkdsl.aot.ttgir import read_ttgir

    machine = RecordingMachine(1, 4, target)
    layer = reference.Layer(machine, 4096, 1024, 2048)
    layer.tma = tma
    layer(*(blank((1024, 2048), layer.gathered.local.dtype) for _ in range(2)))
    (use,) = machine.uses
    compiled = compile_kernel(use, target)
    with open(reference.__file__) as file:
        assert lint(compiled, target, file.read(), IN_REFERENCE_ON_AMD) == []
    (loop,) = dot_loops(read_ttgir(compiled.ttgir))
    assert loop.name == "scf.for"
    buffers = "3x64x64xbf16" if target in ("sm_90", "sm_100") else "2x64x64xbf16"
    assert target == "gfx942" or buffers in compiled.ttgir
    unit = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05.mma"}
    assert target == "gfx942" or unit[target] in compiled.ptx


def test_lint_runs_what_fits_and_skips_what_it_is_told(build):
    compiled = build("publish", FORM="bare")
    (finding,) = lint(compiled)
    assert (finding.lint, finding.kernel, finding.target) == ("release-without-barrier", "publish", "sm_90")
    assert "publish for sm_90: release-without-barrier" in str(finding) and finding.line > 0
    assert lint(compiled, skip=frozenset({"release-without-barrier"})) == []
    assert lint(dataclasses.replace(compiled, ptx=""), "gfx942") == []
    with pytest.raises(ValueError, match="no lint called no-such"):
        lint(compiled, skip=frozenset({"no-such"}))


def test_a_source_is_read_once_for_all_kernels_and_targets_of_its_module(build, monkeypatch):
    """A module has dozens of kernels for each of four targets: parsing it anew for each cost seconds."""
    seen = []
    monkeypatch.setattr(lint_source, "parse_python", lambda text: seen.append(text) or parse_python(text))
    fault = next(fault for name, fault, _ in SOURCES if name == "loop-carried-copy")
    head = "import triton\n\n\n@triton.jit\ndef {}(x, n):\n    seen = 0\n    "
    texts = [head.format(name) + fault + "\n" for name in ("one", "other")]
    made = [build("publish", FORM="bare"), dataclasses.replace(build("publish", FORM="bare"), kernel="second")]
    found = {text: [lint(m, target, text) for m in made for target in ("sm_80", "sm_90")] for text in texts}
    assert sorted(seen) == sorted(texts)
    for text in texts:
        for findings, kernel in zip(found[text], ("publish", "publish", "second", "second"), strict=True):
            (copied,) = [f for f in findings if f.text == "source"]
            assert copied.kernel == kernel and copied.excerpt == text.splitlines()[copied.line - 1]


def test_a_barrier_that_not_every_thread_reaches_does_not_count():
    text = PTX.replace("BARRIER", "@%p2 bar.sync 0;")
    assert LINTS["release-without-barrier"].run(text)
    assert LINTS["release-without-barrier"].run(PTX.replace("BARRIER", "bar.sync 0;")) == []


def test_one_thread_may_release_its_own_store():
    own = PTX.replace("BARRIER", "").replace("st.global.b32 [%rd1], %r1", "@%p1 st.global.b32 [%rd1], %r1")
    assert LINTS["release-without-barrier"].run(own) == []
    assert LINTS["release-without-barrier"].run(own.replace("@%p1 st.global", "@%p2 st.global"))


def test_asm_labels_are_local_to_their_braces():
    spin = "{ .reg .pred q; W: ld.acquire.sys.global.u32 %r2, [%rd2]; setp.eq.u32 q, %r2, 0; @q bra W; }"
    text = PTX.replace("BARRIER", f"bar.sync 0;\n{spin}\n{spin}\nst.global.b32 [%rd1], %r2;")
    (finding,) = LINTS["release-without-barrier"].run(text)
    assert "release" in text.splitlines()[finding.line - 1]


def test_reads_before_the_acquire_are_not_blamed():
    early = "ld.global.nc.b32 %r4, [%rd1];"
    wait = "ld.acquire.sys.global.u32 %r2, [%rd2];"
    rule = LINTS["cached-load-after-wait"]
    assert rule.run(PTX.replace("BARRIER", f"{early}\n{wait}")) == []
    assert rule.run(PTX.replace("BARRIER", f"{wait}\n{early}"))


PTX = """
.version 8.0
.visible .entry kernel(
    .param .u64 kernel_param_0
)
{
    .reg .pred %p<3>;
    st.global.b32 [%rd1], %r1; // the data
    BARRIER
    @%p1 atom.global.sys.release.exch.b32 %r3, [%rd2], 1;
    ret;
}
"""
