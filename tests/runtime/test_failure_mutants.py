"""The tests that docs/failures.md names exist, and can fail: faults planted in the runtime that a module has, each with
the test of another file that finds it. Leaks are planted in test_constructions_counted.py."""

import inspect
import re
import sys
from pathlib import Path

import pytest
import test_failures as scenes
from test_failures import alone_in_group  # noqa: F401

ROOT = Path(__file__).parent.parent.parent


def keep_quiet(op, error):
    """What a call raised is kept on its rank."""
    op.closed_because = f"a call raised {type(error).__name__} ({error})"
    op.machine.end_call()


def raise_alone(machine, what, error):
    """What failed at construction is told to nobody."""
    if error is not None:
        raise error


def refuse_alone(op, tensors, given, strict=True, outs=()):
    """Ranks do not compare their calls."""
    return op.bind(tensors, given, strict, outs)


def remember(op, reason):
    """Close leaves an op as it is."""


def end_silently(name, machines, maker):
    """Nobody is warned."""


def end_at_once(name, machines, maker):
    """A capture is nothing to wait for."""
    for machine in machines:
        machine.release()


def share_words(op, module, states={}):  # noqa: B006
    """The instances of a rank count their calls in one place."""
    op.made_alone(module)
    op.state = states.setdefault((op.machine._world, op.machine.place), op.state)


FAULTS = [  # where in the module, what it is in place of, and the test that must fail
    ("up", "abandon", keep_quiet, scenes.test_an_exception_inside_a_call_reaches_the_peers_at_once_and_names_the_rank),
    ("module", "want_success", raise_alone, scenes.test_a_rank_that_cannot_build_its_instance_is_named_on_every_rank),
    ("up", "agreed", refuse_alone,
     scenes.test_arguments_that_one_rank_refuses_are_told_to_all_where_calls_are_compared),
    ("up", "forget", remember, scenes.test_after_close_everything_says_so_and_close_again_is_nothing),
    ("module", "end_unclosed", end_silently, scenes.test_an_instance_that_is_collected_gives_everything_back_and_warns),
    ("module", "end_unclosed", end_at_once, scenes.test_nothing_is_freed_while_a_graph_is_captured),
    ("up", "__init__", share_words, scenes.test_groups_that_overlap_share_nothing),
]  # fmt: skip


@pytest.mark.parametrize(("place", "name", "fault", "test"), FAULTS, ids=[fault.__name__ for _, _, fault, _ in FAULTS])
def test_a_fault_of_the_runtime_is_found(place, name, fault, test, two_ops, request, monkeypatch):
    given = {each: request.getfixturevalue(each) for each in inspect.signature(test).parameters}
    target = two_ops.OPS["up"] if place == "up" else sys.modules[two_ops.__module__]
    if name == "__init__":
        monkeypatch.setattr(target, "made_alone", target.__init__, raising=False)
    monkeypatch.setattr(target, name, fault)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        test(**given)


def test_the_document_names_tests_and_scenes_that_exist():
    text = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    table = text[text.index("## Where it is tried") :]
    written = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", table)
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in written] == []
    program = (ROOT / "tests" / "gpu" / "check_failures.py").read_text(encoding="utf-8")
    for row in re.findall(r"^\| (?!what|---).*\| `(\w+)` \|$", table, re.MULTILINE):
        assert f'"{row}": {row}' in program or row == "many"
