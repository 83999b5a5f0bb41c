"""What a loaded value may decide in a kernel, and what it may not: each way is refused at its line, or let by."""

import pytest
from data_specs import PATH, spec
from kernel_specs import ROOT, checked

LINES = (ROOT / PATH).read_text().splitlines()
X, W = "tl.load(x_ptr + row * n_cols", "tl.load(w_ptr"
REFUSED = {  # what is said, the access that it points to, where what decides comes from
    "by_argmax": ("a load of X at an address that depends on data", "y = tl.load", X),
    "by_value": ("a load of X at an address that depends on data", "tl.load(x_ptr + at", X),
    "by_load_mask": ("whether a load of X takes place depends on data", "y = tl.load", X),
    "by_store_mask": ("whether a store of Y takes place depends on data", "tl.store", X),
    "by_range": ("how often a loop runs depends on data", "acc += tl.load", W),
    "by_branch": ("whether `tl.store` takes place depends on data", "    tl.store", X),
    "by_assignment": ("a load of X at an address that depends on data", "y = tl.load", X),
    "by_while": ("whether `tl.load` takes place depends on data", "x += tl.load", X),
    "by_helper": ("a load of X at an address that depends on data", "y = tl.load", "x = tl.load(p)"),
    "by_scan": ("a load of X at an address that depends on data", "y = tl.load", X),
    "by_reduction": ("a load of X at an address that depends on data", "y = tl.load", W),
    "by_order": ("a load of X at an address that depends on data", "y = tl.load", X),
    "by_histogram": ("a load of X at an address that depends on data", "y = tl.load", W),
    "by_bits": ("a load of X at an address that depends on data", "y = tl.load", X),
    "by_assembly": ("a load of X at an address that depends on data", "y = tl.load", "tl.inline_asm_elementwise"),
    "by_descriptor": ("a load of X at an address that depends on data", "y = x_desc.load", "x_desc.load([row, 0])"),
    "by_advance": ("a load of X at an address that depends on data", "y = tl.load", W),
    "by_pointer": ("a load at an address that depends on data", "y = tl.load", "tl.load(p)"),
    "by_atomic": ("whether an atomic of W takes place depends on data", "tl.atomic_add", X),
}
ALLOWED = ("chosen_values", "picks_of_what_is_whole")


def said(safe: str, names) -> dict[str, list[str]]:
    """What is said of each kernel, of one spec that has them all."""
    text = spec(names, safe)
    found = {name: [] for name in names}
    for d in checked(text).report.diagnostics:
        item = text[: d.span.start].rindex("\nop ") + 4
        found[text[item : text.index("(", item)]].append(f"{d.code}: {d.message}")
    return found


@pytest.fixture(scope="module")
def refused():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return said("false", REFUSED)


@pytest.fixture(scope="module")
def accepted():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return said("true", sorted(set(REFUSED) - {"by_atomic"})) | said("false", ALLOWED)


def line_of(name: str, code: str) -> int:
    first = LINES.index(next(text for text in LINES if text.startswith(f"def {name}(")))
    return next(i for i in range(first, len(LINES)) if code in LINES[i]) + 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_data_decides_is_refused_at_the_access_naming_the_load(refused, name):
    what, access, load = REFUSED[name]
    inside = "row_of" if name == "by_helper" else name
    (found,) = refused[name]
    assert found.startswith(f"CD650: {PATH}:{line_of(name, access)}: {what}: line {line_of(inside, load)} ")


@pytest.mark.parametrize("name", sorted({*REFUSED, *ALLOWED} - {"by_atomic"}))  # which is refused without data too
def test_the_same_without_the_dependence_is_fused(accepted, name):
    assert accepted[name] == []
