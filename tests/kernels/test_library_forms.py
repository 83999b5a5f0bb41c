"""What kernels of libraries bring along: imports that are tried, decorators of their own, guards that return, casts of
numbers, branches that constants rule out."""

import sys

import pytest
from evidence_table import compiled
from kernel_specs import ROOT, checked
from library_forms import BY_TICKET, NORM, PATH
from test_fused_kernels import failures

from chunkdsl import ChunkError, ChunkSchedule, compile
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.rewrite import MARK, by_ticket, definitions
from chunkdsl.kernels.source import KernelSource, read_kernel
from chunkdsl.render.module import render_module

IMPORT = "from triton.language.extra.libdevice import rsqrt"


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def norm(**pinned):
    read = read_kernel(PATH, ROOT / PATH, "norm")
    return KernelSource(read.path, read.file, read.text, read.function, tuple(pinned.items()))


def test_a_kernel_in_the_manner_of_libraries_is_fused(tmp_path):
    """With numbers written into the call; as arguments of the launch it is a row of docs/kernels.md."""
    assert failures(BY_TICKET, tmp_path, 2, dims=(13,)) == []


def test_it_compiles_and_its_import_says_where_it_is_from():
    made = checked(NORM)
    assert compiled(made, "sm_90") == []
    line = next(i for i, text in enumerate((ROOT / PATH).read_text().splitlines(), 1) if IMPORT in text)
    module = render_module(made.schedule, (2,))
    assert f"\n{IMPORT}  # chunk: {PATH}:{line}, the first that is here\n" in module
    assert "nowhere" not in module and "tuner" not in module


def test_what_stands_behind_a_return_is_moved_and_stays_as_it_is():
    source = norm(EACH=4, BLOCK=128)
    before = dict(definitions(source))["norm"].splitlines()
    after = dict(by_ticket(source))["norm_by_ticket"].splitlines()
    guard = next(i for i, line in enumerate(after) if "first >= n_rows" in line)
    assert after[guard + 1 : guard + 4] == [
        f"        pass  # the grid may be longer{MARK}", f"    else:{MARK}", "        cols = tl.arange(0, BLOCK)",
    ]  # fmt: skip
    second = next(i for i, line in enumerate(after) if line.startswith("        if program_1 > 0: pass"))
    assert after[second + 1] == f"        else:{MARK}" and after[second + 2].startswith("            for row in range")
    unmarked = [line.strip() for line in after if MARK not in line]
    assert unmarked == [line.strip() for line in before if line.strip() in unmarked] and len(after) == len(before) + 2


GUARD = """import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, N):
    at = tl.program_id(0)
    if at >= N:
        BODY
        return
    tl.store(x_ptr + at, 1)
    TAIL
"""


@pytest.mark.parametrize("body, tail, refused", [
    ("tl.store(x_ptr, 0)", "return", False),
    ("at = 0.5", "pass", True),  # another type than the rest may give it
    ("pass", "for i in range(N):\n        return", True),
    ("pass", "return at", True),
])  # fmt: skip
def test_a_return_that_no_splice_can_say_is_refused_at_its_line(body, tail, refused):
    text = GUARD.replace("BODY", body).replace("TAIL", tail)
    source = KernelSource("k.py", ROOT / "k.py", text.replace("        pass\n", ""), "kernel")
    if not refused:
        assert "return" not in by_ticket(source)[0][1]
        return
    with pytest.raises(KernelFault, match="returns early") as raised:
        by_ticket(source)
    assert source.text.splitlines()[raised.value.line - 1].strip().startswith("return")


def test_names_with_another_value_behind_a_return_have_a_name_of_their_own_there():
    """Triton has one type for a name before and behind an `if`; behind a return it may be another."""
    text = GUARD.replace("        BODY\n", "").replace("    TAIL\n", "    N = x_ptr + N\n    tl.store(N, at)\n")
    (made,) = (text for _, text in by_ticket(KernelSource("k.py", ROOT / "k.py", text, "kernel")))
    assert made.split("else:")[1].replace(MARK, "").splitlines()[1:] == [
        "        N_behind_8 = N", "        tl.store(x_ptr + at, 1)", "        N_behind_8 = x_ptr + N_behind_8",
        "        tl.store(N_behind_8, at)",
    ]  # fmt: skip


def test_branches_that_constants_rule_out_need_not_be_there():
    assert "rsqrt" in "".join(norm(EACH=4, BLOCK=128).import_lines)
    assert [name for name, _ in definitions(norm(ACT="half"))] == ["norm"]
    with pytest.raises(KernelFault, match="`gelu` comes from `nowhere`"):
        _ = norm(ACT="gelu").needed
    _ = read_kernel(PATH, ROOT / PATH, "norm").needed  # the constants are not known yet


def test_a_program_that_chose_another_import_is_told(tmp_path, monkeypatch):
    text = (ROOT / PATH).read_text()
    for old in ("import nowhere.tuning as tuning\n", "from nowhere.activations import gelu\n",
                "from nowhere.device import is_old\n"):  # fmt: skip
        text = text.replace(old, "")
    text = text.replace("is_old()", "True").replace("import nothing_of_this_name as rsqrt", "import rsqrt")
    text = text[: text.index("@tuning")] + text[text.index("@triton.jit") :]
    (tmp_path / "chosen_kernels.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("chosen_kernels", None)
    import chosen_kernels

    compile(kernel=chosen_kernels.norm, schedule=ChunkSchedule("all_gather"))
    chosen_kernels.norm.fn.__globals__["rsqrt"] = print
    with pytest.raises(ChunkError, match="`rsqrt` is another function in this program"):
        compile(kernel=chosen_kernels.norm, schedule=ChunkSchedule("all_gather"))
