"""Splices: what changes in a kernel's text, and that nothing else does."""

import pytest
from kernel_specs import PATH, ROOT

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.order import Order, fits, orders
from chunkdsl.kernels.rewrite import MARK, PARAMETERS, by_ticket, definitions
from chunkdsl.kernels.source import KernelSource

TEXT = '''import triton
import triton.language as tl

SCALE: tl.constexpr = 2  # not used


@triton.jit
def where(é, AXIS: tl.constexpr):
    return tl.program_id(0) + é  # ünïcode stays


@triton.autotune(
    configs=[],
    key=[],
)
@triton.jit
def kernel(x_ptr, N,  # a comment
           BLOCK: tl.constexpr = 8):
    """Doc."""
    at = where(0, 1) * BLOCK  +  tl.program_id(axis=1)
    tl.store(x_ptr + at, tl.num_programs(0))
'''


def source(text=TEXT, function="kernel"):
    return KernelSource("k.py", ROOT / "k.py", text, function)


def test_only_program_ids_and_names_change():
    helper, kernel = (text for _, text in by_ticket(source()))
    ids = ", ".join(PARAMETERS)
    assert helper == f"@triton.jit\ndef where_by_ticket({ids}, é, AXIS: tl.constexpr):{MARK}\n" + (
        f"    return program_0 + é  # ünïcode stays{MARK}"
    )
    assert kernel.splitlines() == [
        "@triton.jit",
        f"def kernel_by_ticket({ids}, x_ptr, N,  # a comment{MARK}",
        "           BLOCK: tl.constexpr = 8):",
        '    """Doc."""',
        f"    at = where_by_ticket({ids}, 0, 1) * BLOCK  +  program_1{MARK}",
        f"    tl.store(x_ptr + at, programs_0){MARK}",
    ]


def test_the_untouched_text_is_the_files_own_without_choosers_and_what_is_not_needed():
    names = [name for name, _ in definitions(source())]
    assert names == ["where", "kernel"]
    assert "autotune" not in definitions(source())[1][1]
    assert definitions(source())[0][1] in TEXT


BARE = "from triton.language import program_id"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("import triton\n", "import triton\nimport os\n", "N,", "os,"), None),
        (("tl.num_programs(0)", "len(os.sep)", "import triton\n", "import triton\nimport os\n"), "imports only"),
        (("tl.num_programs(0)", "nowhere"), "defined nowhere"),
        (("axis=1", "axis=N"), "axis that is not 0, 1 or 2"),
        (("N,  #", "program_0,  #"), "uses the name"),
        (("@triton.jit\ndef where", "def where"), "not a Triton function"),
        (("tl.num_programs(0)", "ask(0)", "import triton\n", f"import triton\n{BARE} as ask\n"), "another name"),
        (("tl.num_programs(0)", "ask(0)", "\n\n@triton.jit", "\nask = tl.num_programs\n\n@triton.jit"), "another name"),
    ],
)
def test_what_cannot_be_copied_is_refused(change, reason):
    text = TEXT
    for old, new in zip(change[::2], change[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    if reason is None:
        assert by_ticket(source(text))
        return
    with pytest.raises(KernelFault, match=reason):
        made = source(text)
        _ = made.needed
        by_ticket(made)


def test_every_order_is_its_own_inverse():
    """Each program of a grid is the place of exactly one (block, column), ragged groups included."""
    for order in orders((35, 1, 1)):
        for blocks, columns in ((7, 5), (5, 7), (35, 1)):
            numbers = [order.number(b, c, blocks, columns) for b in range(blocks) for c in range(columns)]
            assert sorted(numbers) == list(range(35))


def test_an_order_that_is_off_by_one_program_does_not_fit():
    order, grid = Order(group=3), (35, 1, 1)
    placed = {order.program(order.number(b, c, 7, 5), grid): b for b in range(7) for c in range(5)}
    assert fits(order, placed, grid, 7)
    placed[(0, 0, 0)], placed[(34, 0, 0)] = placed[(34, 0, 0)], placed[(0, 0, 0)]
    assert not fits(order, placed, grid, 7)


def test_the_zoo_is_rewritten_in_few_lines():
    text = (ROOT / PATH).read_text()
    for function, changed in (("matmul_2d", 3), ("matmul_persistent", 2), ("softmax", 2)):
        before = dict(definitions(source(text, function)))[function].splitlines()
        after = dict(by_ticket(source(text, function)))[f"{function}_by_ticket"].splitlines()
        assert sum(a != b for a, b in zip(before, after, strict=True)) == changed
        assert all(MARK in b for a, b in zip(before, after, strict=True) if a != b)
