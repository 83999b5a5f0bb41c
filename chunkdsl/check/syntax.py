"""CD1: text that is not the language. Each rule words one finding; `syntax/mistakes.py` decides which one applies."""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Edit, Fix, Label
from chunkdsl.source import Span

ITEMS = ("chunk", "mesh", "dim", "tensor", "policy", "op", "plan", "kernel", "use", "gradient")


def _replace(title: str, span: Span, text: str, safe: bool = False) -> tuple[Fix, ...]:
    """One fix. Safe where the text has no other reading, and not where a word, a bracket or a unit is a guess."""
    return (Fix(title, (Edit(span, text),), safe),)


@rule("CD101", "unexpected-text")
def unexpected_text(span: Span, found: str, wanted: Iterable[str]) -> Finding:
    """The text does not continue as the grammar allows here, and it resembles no known mistake.

    Fails:
        tensor x : bf16 @ tp

    Mended:
        tensor x : bf16[M @ tp]
    """
    words = list(wanted)
    listed = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return Finding(f"unexpected {found}", span, f"expected {listed}")


@rule("CD102", "unknown-item")
def unknown_item(span: Span, word: str, near: str | None) -> Finding:
    """An item, which starts at a letter in column one, begins with a word that names no kind of item.

    Fails:
        tensr x : bf16[M]

    Mended:
        tensor x : bf16[M]
    """
    fixes = _replace(f"write `{near}`", span, near) if near else ()
    hint = f"did you mean `{near}`?" if near else f"an item is one of {', '.join(ITEMS)}"
    return Finding(f"`{word}` does not start an item", span, "not a kind of item", help=hint, fixes=fixes)


@rule("CD103", "item-not-in-column-one")
def item_not_in_column_one(span: Span, edit: Edit | None) -> Finding:
    """Items start in column one, each on a line of its own: that is how a mistake stays inside its item.

    Fails:
        dim M = 4
            dim N = 8

    Mended:
        dim M = 4
        dim N = 8
    """
    fixes = (Fix("start it in column one", (edit,), safe=True),) if edit else ()
    return Finding("an item starts at a letter in column one", span, "not in column one", fixes=fixes)


@rule("CD104", "unindented-body")
def unindented_body(span: Span) -> Finding:
    """A letter in column one starts an item, so the lines between an item's braces are indented.

    Fails:
        op f(x) -> y {
        y = relu(x)
        }

    Mended:
        op f(x) -> y {
            y = relu(x)
        }
    """
    fixes = _replace("indent this line", Span(span.start, span.start), "    ", safe=True)
    return Finding("a line inside braces starts in column one", span, "this would start an item", fixes=fixes)


@rule("CD105", "missing-bracket")
def missing_bracket(span: Span, bracket: str, opener: Span | None) -> Finding:
    """A parenthesis, bracket or brace is missing.

    Fails:
        op f(x) -> y { y = relu(x

    Mended:
        op f(x) -> y { y = relu(x) }
    """
    labels = (Label(opener, "opened here"),) if opener else ()
    fixes = _replace(f"insert `{bracket}`", Span(span.start, span.start), bracket)
    return Finding(f"`{bracket}` is missing", span, f"`{bracket}` expected", labels, fixes=fixes)


@rule("CD106", "stray-bracket")
def stray_bracket(span: Span, bracket: str) -> Finding:
    """A bracket closes nothing, or opens something where nothing can be opened.

    Fails:
        dim M = 4)

    Mended:
        dim M = 4
    """
    return Finding(f"unmatched `{bracket}`", span, "no partner", fixes=_replace(f"remove `{bracket}`", span, ""))


@rule("CD107", "wrong-separator")
def wrong_separator(span: Span, found: str, wanted: str) -> Finding:
    """One mark stands where another is meant. Types follow `:`, everything else that is given a value follows `=`,
    conditions compare with `==`, and results follow `->`.

    Fails:
        policy p { chunk : 4 MiB }

    Mended:
        policy p { chunk = 4 MiB }
    """
    fixes = _replace(f"write `{wanted}`", span, wanted, safe=wanted in ("=", ":", "->", "=="))
    return Finding(f"`{found}` where `{wanted}` is meant", span, f"`{wanted}` expected", fixes=fixes)


@rule("CD108", "keyword-as-name")
def keyword_as_name(span: Span, word: str) -> Finding:
    """Keywords cannot name things: the file would stop being readable for people first and for tools next.
    Policy keys and parameters of kernels are the exceptions.

    Fails:
        dim step = 4

    Mended:
        dim stride = 4
    """
    return Finding(f"`{word}` is a keyword", span, "a name is wanted here", help=f"choose another, such as `{word}_`")


@rule("CD109", "misspelt-keyword")
def misspelt_keyword(span: Span, word: str, near: str) -> Finding:
    """A word stands where a keyword is wanted and looks like it.

    Fails:
        mesh tp[8] ovr nvlink

    Mended:
        mesh tp[8] over nvlink
    """
    fixes = _replace(f"write `{near}`", span, near)
    return Finding(f"`{word}` is not a keyword", span, f"did you mean `{near}`?", fixes=fixes)


@rule("CD110", "missing-with")
def missing_with(span: Span) -> Finding:
    """A policy is attached to a statement by `with`.

    Fails:
        op f(x) -> y { y = all_gather(x) { route = ring } }

    Mended:
        op f(x) -> y { y = all_gather(x) with { route = ring } }
    """
    fixes = _replace("insert `with`", Span(span.start, span.start), "with ", safe=True)
    return Finding("a policy needs `with` before it", span, "`with` expected", fixes=fixes)


@rule("CD111", "missing-punctuation")
def missing_punctuation(span: Span, mark: str, safe: bool) -> Finding:
    """A comma, a colon, an equals sign or an arrow is missing.

    Fails:
        op f(x y) -> z { z = x }

    Mended:
        op f(x, y) -> z { z = x }
    """
    fixes = _replace(f"insert `{mark}`", Span(span.start, span.start), mark if mark == "," else f" {mark} ", safe)
    return Finding(f"`{mark}` is missing", span, f"`{mark}` expected", fixes=fixes)


@rule("CD112", "unknown-unit")
def unknown_unit(span: Span, unit: str, near: str) -> Finding:
    """Sizes in bytes are written in B, KiB, MiB or GiB, which are powers of 1024.

    Fails:
        policy p { chunk = 4 MB }

    Mended:
        policy p { chunk = 4 MiB }
    """
    fixes = _replace(f"write `{near}`", span, near)
    return Finding(f"unknown unit `{unit}`", span, "B, KiB, MiB or GiB expected", fixes=fixes)


@rule("CD113", "malformed-number")
def malformed_number(span: Span, text: str, why: str, mended: str | None) -> Finding:
    """Numbers are decimal: integers without separators, floats with digits on both sides of the point or an exponent.

    Fails:
        op f(x) -> y { y = x * 1. }

    Mended:
        op f(x) -> y { y = x * 1.0 }
    """
    fixes = _replace(f"write `{mended}`", span, mended, safe=True) if mended else ()
    return Finding(f"`{text}` is not a number: {why}", span, why, fixes=fixes)


@rule("CD114", "unclosed-string")
def unclosed_string(span: Span) -> Finding:
    """A string ends on the line on which it starts.

    Fails:
        use plan "ring.json as r : all_gather over tp

    Mended:
        use plan "ring.json" as r : all_gather over tp
    """
    return Finding('this string has no closing `"`', span, "not closed on this line")


@rule("CD115", "single-quoted-string")
def single_quoted_string(span: Span, text: str | None) -> Finding:
    """Strings are written in double quotes.

    Fails:
        use plan 'ring.json' as r : all_gather over tp

    Mended:
        use plan "ring.json" as r : all_gather over tp
    """
    fixes = _replace("use double quotes", span, f'"{text}"', safe=True) if text is not None else ()
    return Finding("strings are written in double quotes", span, "single quotes", fixes=fixes)


@rule("CD116", "non-ascii-text")
def non_ascii_text(span: Span, what: str, mended: str | None) -> Finding:
    """Outside comments and strings the language is ASCII: names that look alike are the same and any editor types them.

    Fails:
        dim größe = 4

    Mended:
        dim size = 4
    """
    fixes = _replace(f"write `{mended}`", span, mended) if mended else ()
    return Finding(f"{what} is not ASCII", span, "only ASCII outside comments and strings", fixes=fixes)


@rule("CD117", "not-in-the-language")
def not_in_the_language(span: Span, text: str, instead: str, mended: str | None) -> Finding:
    """An operator, a comment mark or a word of another language.

    Fails:
        dim M = 2 ** 4

    Mended:
        dim M = pow2(4)
    """
    title = f"write `{mended}`" if mended else f"remove `{text}`"
    fixes = _replace(title, span, mended, safe=True) if mended is not None else ()
    return Finding(f"there is no `{text}` in the language", span, instead, help=instead, fixes=fixes)


@rule("CD118", "chained-placement")
def chained_placement(span: Span, first: Span) -> Finding:
    """A dimension sharded over several mesh axes names them in one parenthesis, outer first.

    Fails:
        tensor x : bf16[M @ node @ gpu]

    Mended:
        tensor x : bf16[M @ (node, gpu)]
    """
    label = Label(first, "the dimension has a placement already")
    return Finding("a second `@` on one dimension", span, "write `@ (outer, inner)`", (label,))


@rule("CD119", "parameter-type")
def parameter_type(span: Span) -> Finding:
    """Parameters of an op take their type from the `tensor` item of the same name.

    Fails:
        op f(x : bf16[M]) -> y { y = x }

    Mended:
        tensor x : bf16[M]
        op f(x) -> y { y = x }
    """
    return Finding("a parameter states no type", span, "declare it as a `tensor` item before the op")


@rule("CD120", "missing-result")
def missing_result(span: Span) -> Finding:
    """An op names its results after `->`.

    Fails:
        op f(x) { y = relu(x) }

    Mended:
        op f(x) -> y { y = relu(x) }
    """
    return Finding("the results are missing", span, "`-> name` expected before this")


@rule("CD121", "number-out-of-range")
def number_out_of_range(span: Span, why: str) -> Finding:
    """Integers and sizes in bytes fit in 64 bits, and so do floats.

    Fails:
        dim M = 99999999999999999999

    Mended:
        dim M = 99999999
    """
    return Finding("this number is too large", span, why)


@rule("CD122", "fraction-of-a-byte")
def fraction_of_a_byte(span: Span, text: str) -> Finding:
    """A size in bytes is a whole number of bytes.

    Fails:
        policy p { chunk = 0.3 KiB }

    Mended:
        policy p { chunk = 0.5 KiB }
    """
    return Finding(f"`{text}` is not a whole number of bytes", span, "not a whole number of bytes")


@rule("CD123", "nested-too-deeply")
def nested_too_deeply(span: Span, levels: int, most: int) -> Finding:
    """An item nests more than 100 levels of expressions. A chain of operators counts one level for each.

    Fails:
        dim M = 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 +
            1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 +
            1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 +
            1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1

    Mended:
        dim M = 107
    """
    return Finding(
        f"this item nests {levels} levels deep, {most} are allowed", span, "in this item", help="name parts of it"
    )


@rule("CD124", "misplaced-version")
def misplaced_version(span: Span) -> Finding:
    """`chunk N` names the language version and is the first item of a file, once.

    Fails:
        dim M = 4
        chunk 1

    Mended:
        chunk 1
        dim M = 4
    """
    return Finding("`chunk` is not the first item", span, "move it to the top of the file, or remove it")


@rule("CD125", "colon-block")
def colon_block(span: Span, edits: tuple[Edit, ...]) -> Finding:
    """The body of an item, a loop or a condition stands in braces. A colon gives a type; it opens no block.

    Fails:
        op f(x) -> y: y = x

    Mended:
        op f(x) -> y { y = x }
    """
    fixes = (Fix("put the block in braces", edits),)
    return Finding("`:` where `{` is meant", span, "`{` expected, and `}` at the end of the block", fixes=fixes)
