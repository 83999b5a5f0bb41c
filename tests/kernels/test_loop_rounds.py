"""A round of a program that is out of line, at sizes of which no program was traced; what a loop carries."""

import ast

import pytest
from kernel_specs import ROOT, checked, reduced
from round_specs import rounds_spec
from test_every_program import messages

from chunkdsl.kernels import every_program
from chunkdsl.kernels.constants import elsewhere
from chunkdsl.kernels.decisions import carried

PATH = "tests/kernels/kernel_zoo_rounds.py"
ODD, NONE = 13 * 512 + 30, 10**6
LOADS = "program (13, 0, 0) loads row 12 of X; what others do would be rows 13 to 13 (with m = 16, n = 544)"
REFUSED = {
    "peeks": LOADS,
    "peeks_by_a_pointer": LOADS,
    "peeks_by_a_block_pointer": LOADS,
    "peeks_under_an_if": LOADS,
    "peeks_after_its_loop": LOADS,
    "peeks_before_a_shorter_loop": LOADS,
    "peeks_among_columns": "program (13, 0, 0) loads row 248 of X; what others do would be rows 240 to 247",
    "goes_down": "a program goes through the rows downwards, others do upwards",
    "begins_between": "a round of a program begins between two blocks of rows",
    "stores_elsewhere": "program (13, 0, 0) stores row 12 of Y; what others do would be rows 13 to 13",
    "knows_its_stride": "program (1, 0, 0) loads row 0 of X; what others do would be rows 1 to 1",
    "knows_its_address": "a load of X at an address that depends on data: line 123 makes a number of an address",
    "counts_in_floats": "line 132 works it out in floats, which a GPU may round otherwise",
}
RIGHT = ("peeks_by_a_block_pointer", "peeks_among_columns", "stores_elsewhere")


@pytest.fixture(scope="module")
def said():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return messages(rounds_spec(REFUSED, ODD))


@pytest.mark.parametrize("name", REFUSED)
def test_one_round_of_one_program_is_seen(said, name):
    (found,) = said[name]
    assert found.startswith(f"CD650: {PATH}:") and REFUSED[name] in found


def test_without_it_all_rounds_are_looked_at_at_once(monkeypatch):
    """In a few hundred operations of the builder, however many rounds there are."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(every_program, "ALL_OPERATIONS", 700)
    made = checked(rounds_spec(RIGHT, NONE))
    assert [d.message for d in made.report.diagnostics] == []
    bodies = [next(n.body for n in op.launches if n.body) for op in made.schedule.ops]
    assert [b.fetched.gathered for b in bodies] == ["block", "turns", "block"]


def test_what_takes_too_long_to_look_at_waits_for_all_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(every_program, "ALL_OPERATIONS", 20)
    made = checked(rounds_spec(["peeks_by_a_pointer"], NONE + 1))
    assert [n.body.fetched.gathered for op in made.schedule.ops for n in op.launches if n.body] == ["whole"]
    (found,) = messages(reduced("matmul_blocks").replace("f_op", "op_f"))["op_f"]
    assert "has too many programs, or rounds, to look at each at the largest sizes" in found


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x += 1", {"x"}),
        ("y = x\nx = y + 1", {"x"}),
        ("x = k\ny = x", set()),
        ("if k:\n    x = 1\ny = x", {"x"}),
        ("if k:\n    x = 1\nelse:\n    x = 2\ny = x", set()),
        ("for i in range(k):\n    x = 1\ny = x", {"x"}),
        ("for i in range(k):\n    y = i\n    z = y", set()),
    ],
)
def test_what_a_round_may_read_of_the_one_before(body, names):
    assert carried(ast.parse(body).body) == names


@pytest.mark.parametrize("value", ["torch.cuda.is_available()", "tl.constexpr(is_hip())", "torch.version.hip is None"])
def test_a_constant_that_a_machine_decides_is_seen(value):
    assert elsewhere(ast.parse(value).body[0].value) is not None
    assert elsewhere(ast.parse("tl.constexpr(math.log2(math.e) * max(1, 2))").body[0].value) is None
