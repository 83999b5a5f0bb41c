"""What is found of kernels that nobody wrote for this, and where the others are refused."""

import threading
import time

import pytest
from kernel_specs import (
    CALLS,
    COPY,
    GATHERED,
    HEAD,
    KERNELS,
    PATH,
    ROOT,
    checked,
    gathered,
    gemm,
    reduced,
    refused,
    rows,
)
from library_forms import ELEMENTS

from chunkdsl.kernels import answers
from chunkdsl.kernels.fault import KernelFault

FOUND = {
    # block of rows, (grouped rows, across), rows read of the gathered argument, columns of a program
    "matmul_2d": (32, 0, "block", 32),
    "matmul_persistent": (32, 4, "block", 32),
    "matmul_descriptor": (32, 1, "block", 32),
    "matmul_blocks": (32, 0, "block", 32),
    "rms_norm": (1, 1, "block", 0),
    "layer_norm": (1, 1, "block", 0),
    "softmax": (1, 1, "block", 0),
    "gated": (1, 0, "block", 32),
}
REFUSED = {  # what is said, and what stands in the line that it points to
    "by_index": ("a load of X at an address that depends on data: line 270 loads it from I", "tl.load(x_ptr + at"),
    "adds_atomically": ("an atomic on Y", "tl.atomic_add(y_ptr"),
    "counts_visits": ("an atomic on X", "tl.atomic_add(x_ptr"),
    "by_mask": ("whether a store of Y takes place depends on data: line ", "(x < 1.0)"),
    "takes_a_descriptor": ("made on the host", "x_ptr.load("),
    "reads_its_result": ("reads its result Y", "y = tl.load(y_ptr"),
    "works_in_place": ("stores to X, which is an argument", "tl.store(x_ptr"),
    "looks_ahead": ("a load outside the declared shape of X", "(row + 1)"),
    "from_the_last_row": ("in an order that is not known", "def from_the_last_row"),
    "returns_early": ("returns early", "return"),
    "half_of_it": ("of Y unwritten", "def half_of_it"),
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def body_of(text):
    made = checked(text)
    assert [d.message for d in made.report.diagnostics] == []
    return next(n.body for n in made.schedule.ops[0].launches if n.body)


PRODUCT = 2 * 32 * 32 * 96, 2 * (32 + 32) * 96  # a tile of 32 x 32, 96 deep
WORK = {  # operations of products and bytes loaded, of a program
    **dict.fromkeys((name for name in FOUND if name.startswith("matmul")), PRODUCT),
    "rms_norm": (0, 2 * 2 * 96),
    "layer_norm": (0, 2 * 5 * 96),  # three passes, scale and offset
    "softmax": (0, 2 * 96),
    "gated": (0, 2 * 2 * 32),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_understood(name):
    body = body_of(gathered(name))
    assert (body.block, body.order[1], body.fetched.gathered, body.column_block) == FOUND[name]
    assert (body.flops, body.loads) == WORK[name]


@pytest.mark.parametrize("name", REFUSED)
def test_an_unfit_kernel_is_refused_at_its_own_line(name):
    (found,) = checked(refused(name, ", I" if name == "by_index" else "")).report.diagnostics
    what, code = REFUSED[name]
    assert found.code == "CD650" and what in found.message
    place, line = found.message.split(":")[:2]
    assert place == PATH
    lines = (ROOT / PATH).read_text().splitlines()
    first = next(i for i, text in enumerate(lines, 1) if text.startswith(f"def {name}("))
    assert code in lines[int(line) - 1] and 0 <= int(line) - first < 10
    assert found.help.startswith(f"{PATH}:{line} | {lines[int(line) - 1].strip()}")


VARIANTS = {
    "heuristics, constants, two axes": (
        rows("scaled", args="    arg n_cols = n\n    arg alpha = 0.5\n", grid="m, cdiv(n, BLOCK)",
             block='32, EVEN = false, KIND = "relu"') + CALLS["softmax"], (1, 0, "block", 32)),
    "swizzle2d": (gemm("matmul_swizzle", "cdiv(m, BM), cdiv(n, BN)") + GATHERED, (32, 4, "block", 32)),
    "three axes": (
        rows("doubled", args="    arg n_cols = n\n", grid="cdiv(n, 2 * BLOCK), 2, m", block=16) + CALLS["softmax"],
        (1, 1, "block", 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_other_forms_of_kernels_are_understood(name):
    text, wanted = VARIANTS[name]
    item, call = text.split("op f_op")
    body = body_of(HEAD + item + "op f_op" + call.format(policy=COPY))
    assert (body.block, body.order[1], body.fetched.gathered, body.column_block) == wanted


def test_one_parameter_is_not_two_tensors():
    text = gathered("softmax").replace("Y = out_ptr", "Y = in_ptr")
    (found,) = checked(text).report.diagnostics
    assert found.code == "CD236" and "bound twice" in found.message


SHORT = HEAD.replace("1..256", "1..64") + """
kernel f(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : [m, n]
    arg stride_am = A.stride(0)
    arg stride_ak = A.stride(1)
    arg stride_bk = B.stride(0)
    arg stride_bn = B.stride(1)
    arg stride_cm = C.stride(0)
    arg stride_cn = C.stride(1)
    grid = cdiv(m, BM) * cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32, GROUP = 8
}
op f_op(x, w) -> y { y = f(all_gather(x), w) }
"""


@pytest.mark.parametrize("tensor, call, refused", [
    ("tensor z : bf16[M @ tp, N]", "f(all_gather(z))", False),
    ("tensor z : bf16[M, N @ tp]", "f(z)", True),  # a rank's part of 160 columns may be cut anywhere
])  # fmt: skip
def test_a_size_that_never_changes_needs_no_mask(tensor, call, refused):
    item = rows("scaled", args="    arg n_cols = n\n    arg alpha = 0.5\n", grid="m, cdiv(n, BLOCK)",
                block='32, EVEN = 1, KIND = "relu"')  # fmt: skip
    made = checked(HEAD + item + tensor + f"\nop f_op(z) -> y {{ y = {call} }}")
    assert ["outside the declared shape" in d.message for d in made.report.diagnostics] == [True] * refused
    body = [n.body for n in made.schedule.ops[0].launches] if not refused else []
    assert all((b.block, b.column_block) == (1, 32) for b in body)


def test_a_short_range_is_looked_at_between_its_ends():
    """Surplus rows of the second block are the first ones: of 64 rows, or less than a block, nothing shows of it."""
    assert body_of(SHORT).fetched.gathered == "wrap"


def test_a_chunk_never_ends_inside_a_tile_that_no_block_of_rows_holds():
    """Programs store 64 elements of rows of 80."""
    (found,) = checked(ELEMENTS).report.diagnostics
    assert found.code == "CD355" and found.span is not None
    where, what = found.message.split(": ", 1)
    text = (ROOT / "specs/kernels/add.py").read_text().splitlines()[int(where.split(":")[1]) - 1]
    assert text.strip().startswith("tl.store(y_ptr + at") and text.strip() in found.help
    assert "program (1, 0, 0) stores rows 0 to 1 of Y" in what and "bind the result to a name first" in found.help


def test_rows_that_are_sent_are_counted_along_a_size():
    item = KERNELS["matmul_2d"].replace("[m,", "[96,").replace("cdiv(m", "cdiv(96") + "tensor h : bf16[96, K @ tp]\n"
    item = item.replace("    arg stride_am", "    arg M = 96\n    arg stride_am")
    (found,) = checked(HEAD + item + "op f_op(h, v) -> y { y = all_reduce(f(h, v)) }").report.diagnostics
    assert found.code == "CD650" and "is a number in its item" in found.message


@pytest.mark.parametrize("policy", ["side = push", "route = ring, place = co_located", "place = own_sms(2)"])
def test_a_transport_that_needs_another_store_is_refused(policy):
    (found,) = checked(reduced("matmul_2d", policy)).report.diagnostics
    assert found.code == "CD601"


def test_a_softmax_over_a_sharded_size_is_refused():
    head = HEAD.replace("x : bf16[M @ tp, K]", "x : bf16[M, K @ tp]")
    (found,) = checked(head + KERNELS["softmax"] + "op f_op(x) -> y { y = f(x) }").report.diagnostics
    assert found.code == "CD650" and "`n` is sharded" in found.message


def test_a_result_that_no_argument_sizes_is_refused():
    text = HEAD + KERNELS["rms_norm"].replace("Y = y_ptr : [m, n]", "Y = y_ptr : [m, z]")
    (found,) = checked(text + "op f_op(x, g) -> y { y = f(x, g) }").report.diagnostics
    assert found.code == "CD237"


def test_a_question_is_answered_once_and_by_one_thread_at_a_time(monkeypatch):
    busy, most, asked, started = [], [], [], threading.Barrier(3)

    class Slow(answers.Finder):
        def find(self):
            busy.append(1)
            most.append(len(busy))
            asked.append(self.q)
            time.sleep(0.05)
            busy.pop()
            raise KernelFault("unfit", 3, "mend it")

    monkeypatch.setattr(answers, "Finder", Slow)
    monkeypatch.setattr(answers, "_answers", {})
    texts = [gathered("rms_norm"), gathered("softmax")]

    def ask(text, found):
        started.wait()
        found += [d.message for d in checked(text).report.diagnostics]

    found = [[], [], []]
    threads = [threading.Thread(target=ask, args=(t, f)) for t, f in zip([*texts, texts[0]], found, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(len(f) == 1 and "unfit" in f[0] for f in found)
    assert len(asked) == 2 and max(most) == 1
