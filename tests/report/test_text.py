import pytest

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Report, Severity
from chunkdsl.report.text import TAB, WIDEST, columns, render, show
from chunkdsl.source import Source, Span


def report(text, *spans, path="a.chunk", **parts):
    result = Report(Source(path, text))
    labels = tuple(Label(s, "declared here") for s in spans[1:])
    span = spans[0] if spans else None
    parts = {"label": "wrong", **parts} if span else parts
    result.add(Diagnostic("CD203", "some-rule", parts.pop("severity", Severity.ERROR), "it is wrong", span,
                          labels=labels, **parts))  # fmt: skip
    return result


def caret_line(text, span):
    """The line under the source line of the only mark."""
    return render([report(text, span, label="")]).split("\n")[3]


def test_a_finding_with_everything():
    text = "dim M = 4\ndim N = 5\n\n# far\ntensor x : bf16[M]\n"
    fix = Fix("write `N`", (Edit(Span(43, 44), "N"),), safe=True)
    found = report(text, Span(43, 44), Span(4, 5), Span(14, 15), help="think", fixes=(fix, Fix("drop it", ())))
    assert render([found]) == (
        "a.chunk:5:17: error: CD203[some-rule] it is wrong\n"
        "  |\n"
        "1 | dim M = 4\n"
        "  |     - declared here\n"
        "2 | dim N = 5\n"
        "  |     - declared here\n"
        "...\n"
        "5 | tensor x : bf16[M]\n"
        "  |                 ^ wrong\n"
        "  = help: think\n"
        "  = fix: write `N` (safe)\n"
        "  = fix: drop it\n"
        "\n"
        "1 error\n"
    )


def test_two_marks_on_one_line_stand_in_order():
    lines = render([report("ab cd", Span(3, 5), Span(0, 2))]).split("\n")
    assert lines[2:5] == ["1 | ab cd", "  | -- declared here", "  |    ^^ wrong"]


def test_a_finding_about_the_whole_file_has_no_place():
    assert render([report("text")]) == "a.chunk: error: CD203[some-rule] it is wrong\n\n1 error\n"


def test_wide_and_combining_characters_keep_the_carets_under_the_text():
    assert caret_line("\u5e45\u5e45 x", Span(3, 4)) == "  |      ^"
    assert caret_line("\u5e45x", Span(0, 1)) == "  | ^^"
    assert caret_line("e\u0301x", Span(2, 3)) == "  |  ^"


def test_tabs_are_expanded_alike_above_and_below():
    text = "\tx\ty"
    assert show(text) == " " * TAB + "x" + " " * (TAB - 1) + "y"
    assert caret_line(text, Span(3, 4)) == "  | " + " " * (2 * TAB) + "^"
    assert caret_line(text, Span(0, 1)) == "  | " + "^" * TAB


def test_control_characters_are_not_passed_on():
    text = "a\x1b[2Jb\u202e"
    assert "\x1b" not in render([report(text, Span(0, 1))]) and "\u202e" not in render([report(text, Span(0, 1))])
    assert columns(text) == 7
    assert "\x1b" not in render([report("a", Span(0, 1), path="\x1b[2J")])


def test_an_empty_span_and_a_span_at_the_end_have_one_caret():
    assert caret_line("ab", Span(1, 1)) == "  |  ^"
    assert caret_line("ab", Span(2, 2)) == "  |   ^"
    assert caret_line("ab\r\n", Span(3, 3)) == "  |   ^"
    assert caret_line("", Span(0, 0)) == "  | ^"


def test_a_span_over_lines_says_that_it_goes_on():
    assert caret_line("ab cd\nef", Span(3, 8)) == "  |    ^^..."


@pytest.mark.parametrize("at", [0, 1000, 4000])
def test_a_long_line_is_cut_around_its_mark(at):
    text = "x" * at + "!" + "y" * 3000
    lines = render([report(text, Span(at, at + 1))]).split("\n")
    shown, carets = lines[2], lines[3]
    assert len(shown) < WIDEST + 20 and shown[carets.index("^")] == "!"


def test_colour_adds_only_escape_codes():
    import re

    found = report("ab", Span(0, 1), Span(1, 2), help="h", severity=Severity.WARNING)
    coloured = render([found], colour=True)
    assert coloured != render([found]) == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


def test_the_count_tells_severities_apart_and_is_missing_without_findings():
    both = report("ab", Span(0, 1))
    both.add(Diagnostic("CD204", "other", Severity.WARNING, "m"))
    assert render([both, report("x")]).endswith("\n2 errors, 1 warning\n")
    assert render([Report(Source("a", ""))]) == ""
