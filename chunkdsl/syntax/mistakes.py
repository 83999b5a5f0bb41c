"""From the place where a parse stopped to the message a person needs.

`DETECTORS` holds one function for each kind of mistake, the surest first; the first that recognises its mistake words
the finding. A detector that only guesses (an inserted comma, a word read as a keyword) has its guess parsed, and is
believed only if the parser then gets further. Knows the parser by two facts alone: how far a text parses, and how
its terminals are spelt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Protocol

from chunkdsl.check import syntax as rules
from chunkdsl.diagnostics import Diagnostic, Edit
from chunkdsl.record import record
from chunkdsl.source import Span
from chunkdsl.syntax.blocks import in_braces
from chunkdsl.syntax.infix import as_call
from chunkdsl.syntax.items import skip_idle

LONGEST = 10_000  # code points of an item in which guesses are still tried: each costs a parse
_WORD = re.compile(r"\w+")
_LAST_WORD = re.compile(r"[A-Za-z_]\w*$")
_WORD_BEHIND = re.compile(r"(?<!\w)[A-Za-z_]\w*(?=[ \t]+[A-Za-z_]\w*$)")
_METHOD = re.compile(r"(?<!\w)[A-Za-z_]\w*\.\w+(?:\($|$)")
_METHODS = "functions take the tensor, as in `gelu(t)`; a transpose is `t.T`"
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = tuple(_CLOSER.values())
_MARKS = ("=", ":", "->", "==", ",")
_TOKENS = re.compile(r'"[^"\n]*"|#[^\n]*|[()\[\]{}]')
_KINDS = {"NAME": "a name", "KEY": "a name", "INT": "an integer", "FLOAT": "a float", "STRING": "a string"}
_KINDS |= {"BYTES": "a size in bytes", "TILE": "a tile shape", "CMP": "a comparison", "$END": "the end of the item"}
_LOOKALIKES = {
    "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2013": "-", "\u2014": "-", "\u2212": "-",
    "\u2192": "->", "\u2026": "..", "\u00d7": "x", "\u00b7": "*", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=",
}  # fmt: skip
_UNITS = {"k": "KiB", "m": "MiB", "g": "GiB", "b": "B", "byte": "B", "bytes": "B"}
_UNITS |= {f"{p}{rest}": f"{p.upper()}iB" for p in "kmg" for rest in ("b", "ib", "i", "byte", "bytes")}
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)[ \t]*([A-Za-z]+)\b")
_FOREIGN = {  # text -> what the language has instead, and the text to put in its place if one will do
    "**": ("write the product, or pow2(n)", None),
    "//": ("comments start with `#`; sizes are divided by `/` or cdiv(a, b)", None),
    "/*": ("comments start with `#` and end with the line", None),
    "&&": ("nest one `if` in another", None),
    "||": ("write two `if`s", None),
    "+=": ("write `a = a + b`", None),
    "-=": ("write `a = a - b`", None),
    "*=": ("write `a = a * b`", None),
    "/=": ("write `a = a / b`", None),
    ":=": ("values are given by `=`", "="),
    "=>": ("results follow `->`", "->"),
    "<-": ("values are given by `=`", "="),
    "%": ("the remainder is `mod`", "mod"),
    ";": ("statements end by themselves", ""),
    "^": ("on sizes, xor(a, b)", None),
    "!": ("conditions compare two sizes, as in `a != b`", None),
    "and": ("nest one `if` in another", None),
    "or": ("write two `if`s", None),
    "not": ("conditions compare two sizes, as in `a != b`", None),
    "elif": ("write `else { if ... { } }`", None),
    "while": ("loops are `for i in range(a, b) { }`", None),
    "return": ("assign to a name that follows `->`", None),
    "def": ("functions over tensors are `op` items", None),
    "is": ("conditions compare two sizes, as in `a == b`", None),
    "lambda": ("functions over tensors are `op` items", None),
    "var": ("values are given by `name = value` alone", None),
    "await": ("ops wait for what they need by themselves", None),
    "yield": ("assign to a name that follows `->`", None),
    "import": ("a spec stands alone; `use plan` and `kernel` name the files that they read", None),
    "class": ("the file is the class: its ops are the methods", None),
    "assert": ("what holds of a size is its range, as in `dim M = 1..4096 step 128`", None),
    "True": ("booleans are `true` and `false`", "true"),
    "False": ("booleans are `true` and `false`", "false"),
}
_CONDITIONS = ("and", "or", "not", "is", "elif", "&&", "||", "!")
_KEYWORDS_MEANT = {"on": "over", "across": "over", "using": "with", "by": "step"}


@record
class Failure:
    """Where the parse of one item stopped. Offsets count from the item's start; `base` is its place in the source."""

    text: str
    base: int
    at: int  # the text [at, end) did not fit
    end: int
    found: str  # its terminal, "$END", or "" where no terminal fits
    before: int  # the end of the last text that did
    accepts: frozenset[str]  # the terminals that would have fitted

    @property
    def word(self) -> str:
        return self.text[self.at : self.end]

    def span(self, start: int, end: int) -> Span:
        return Span(self.base + start, self.base + end)

    @property
    def here(self) -> Span:
        return self.span(self.at, self.end)

    @property
    def last_word(self) -> re.Match | None:
        """The word that the parser took last, if it took one."""
        return _LAST_WORD.search(self.text[: self.before])


class Parser(Protocol):
    spelling: dict[str, str]
    keywords: dict[str, str]

    def reach(self, text: str) -> int: ...


def diagnose(failure: Failure, parser: Parser) -> Diagnostic:
    """The finding for a failed parse: always one."""
    for detect in DETECTORS:
        if (found := detect(failure, parser)) is not None:
            return found
    return _unexpected(failure, parser)


def unclosed(text: str) -> int | None:
    """The offset of the innermost bracket that is not closed. None if all are."""
    opened = _opened(text)
    return opened[-1][1] if opened else None


def _opened(text: str) -> list[tuple[str, int]]:
    """The brackets that are not closed and their offsets, outer first."""
    opened: list[tuple[str, int]] = []
    for match in _TOKENS.finditer(text):
        mark = match[0]
        if mark in _CLOSER:
            opened.append((mark, match.start()))
        elif opened and mark == _CLOSER[opened[-1][0]]:
            opened.pop()
    return opened


def head(text: str, item: Span, keywords: Collection[str]) -> str | None:
    """The keyword with which an item starts, or seems to be meant to start. None for any other text."""
    word = _WORD.match(text, item.start)[0]
    return word if word in rules.ITEMS else _near(word, rules.ITEMS, 0.75)


# ---- guesses


def _near(word: str, words: Collection[str], cutoff: float) -> str | None:
    if word in words:
        return None
    from difflib import get_close_matches  # only a mistake pays for it

    found = get_close_matches(word.lower(), sorted(words), 1, cutoff)
    return found[0] if found else None


def _meant(word: str, words: Collection[str], cutoff: float) -> str | None:
    """The keyword among `words` that a word is near to, or says in another way."""
    other = _KEYWORDS_MEANT.get(word)
    return other if other in words else _near(word, words, cutoff)


def _gain(f: Failure, parser: Parser, start: int, end: int, text: str) -> int:
    """How far past the failure the parse gets with [start, end) replaced, in offsets of the old text; 0 for no gain."""
    if len(f.text) > LONGEST:
        return 0
    edited = f.text[:start] + text + f.text[end:]
    shift = len(text) - (end - start)
    reached = parser.reach(edited)
    needed = skip_idle(f.text, f.end) if start == f.at and end == f.end and f.end > f.at else f.at
    if f.end == f.at:  # the item ended too early: only a whole parse proves the guess
        return reached - shift if reached > len(edited) else 0
    return reached - shift if reached - shift > needed or reached > len(edited) else 0


def _best(f: Failure, parser: Parser, guesses: list[tuple[int, int, str]]) -> tuple[int, int, str] | None:
    """The guess that gets the parser furthest, the first of equals."""
    gains = [(_gain(f, parser, *g), -i) for i, g in enumerate(guesses)]
    gain, index = max(gains, default=(0, 0))
    return guesses[-index] if gain else None


# ---- detectors: certain ones first


def _string(f: Failure, parser: Parser) -> Diagnostic | None:
    line = f.text[f.at :].partition("\n")[0]
    if line.startswith('"') and '"' not in line[1:]:
        return rules.unclosed_string(f.span(f.at, f.at + len(line.rstrip())))
    if line.startswith("'"):
        inner = line[1:].partition("'")
        if inner[1] and '"' not in inner[0]:
            return rules.single_quoted_string(f.span(f.at, f.at + len(inner[0]) + 2), inner[0])
        return rules.single_quoted_string(f.span(f.at, f.at + 1), None)
    return None


def _non_ascii(f: Failure, parser: Parser) -> Diagnostic | None:
    match = _WORD.match(f.text, f.at)
    text, end = (match[0], match.end()) if match else (f.text[f.at : f.at + 1], f.at + 1)
    if text.isascii():
        return None
    if match is None:
        what = f"`{text}` (U+{ord(text):04X} {unicodedata.name(text, 'unnamed')})"
        plain = " " if text.isspace() else _LOOKALIKES.get(text) or unicodedata.normalize("NFKC", text)
    else:
        what, plain = f"`{text}`", unicodedata.normalize("NFKC", text)
    return rules.non_ascii_text(f.span(f.at, end), what, plain if plain.isascii() else None)


def _unit(f: Failure, parser: Parser) -> Diagnostic | None:
    match = re.search(r"(?:(?<![\w.])[0-9.]+[ \t]*)?$", f.text[: f.at])
    number = _NUMBER_AND_UNIT.match(f.text, match.start())
    near = number and number.end() > f.at and _UNITS.get(number[2].lower())
    if near and number[2] != near and (f.found or f.text[f.at].isdigit()):
        return rules.unknown_unit(f.span(*number.span(2)), number[2], near)
    return None


def _number(f: Failure, parser: Parser) -> Diagnostic | None:
    if match := re.compile(r"0[xXbBoO][0-9a-fA-F_]+").match(f.text, f.at):
        try:
            mended = str(int(match[0].replace("_", ""), 0))
        except ValueError:
            mended = None
        return rules.malformed_number(f.span(*match.span()), match[0], "numbers are decimal", mended)
    if match := re.search(r"(?<![\w.])[0-9]+\.$", f.text[: f.at + 1 if f.text[f.at : f.at + 1] == "." else f.before]):
        if not re.match(r"[.0-9]", f.text[match.end() : match.end() + 1]):
            return rules.malformed_number(f.span(*match.span()), match[0], "digits follow the point", match[0] + "0")
    if match := re.compile(r"(?<=[0-9])\.[0-9]+").match(f.text, f.at):
        start = re.search(r"[0-9]+$", f.text[: f.at]).start()
        return rules.malformed_number(f.span(start, match.end()), f.text[start : match.end()], "integers here", None)
    if match := re.compile(r"\.[0-9]+(?!\w)").match(f.text, f.at):
        return rules.malformed_number(f.span(*match.span()), match[0], "digits precede the point", "0" + match[0])
    if match := re.compile(r"[0-9][0-9_]*_[0-9]+(?!\w)").match(f.text, f.at):
        return rules.malformed_number(f.span(*match.span()), match[0], "no separators", match[0].replace("_", ""))
    match = re.compile(r"[0-9]+[A-Za-z_]\w*").match(f.text, f.at)
    if match and f.found == "":
        return rules.malformed_number(f.span(*match.span()), match[0], "a number runs into a word", None)
    return None


def _instead(f: Failure, text: str) -> tuple[str, str | None]:
    """What the language has instead of a foreign text, where it stands, and what to put in its place."""
    if text not in _CONDITIONS or f.text.startswith("plan"):
        return _FOREIGN[text]
    if text in ("and", "&&") and f.accepts & {"COMMA", "RBRACE"} >= {"COMMA", "RBRACE"}:
        return "keys are parted by `,`", ","
    return "only plans have conditions", None


def _foreign(f: Failure, parser: Parser) -> Diagnostic | None:
    for start in (f.at, f.at - 1):
        for size in (2, 1) if start == f.at else (2,):
            mark = f.text[max(start, 0) : max(start, 0) + size]
            if mark in _FOREIGN and not mark.isalpha() and f.text[start : start + 2] != "!=":
                return rules.not_in_the_language(f.span(start, start + len(mark)), mark, *_instead(f, mark))
    behind = _WORD_BEHIND.search(f.text[: f.before])  # `not x`: two names, and only what follows does not fit
    for match in (_WORD.match(f.text, f.at), f.last_word, behind):
        if match and match[0] in _FOREIGN and not (match.start() == 0 and f.at > 0):
            return rules.not_in_the_language(f.span(*match.span()), match[0], *_instead(f, match[0]))
    method = _METHOD.search(f.text[: f.at + 1] if f.word == "(" else f.text[: f.end])
    if f.text.startswith("op") and method and f.word:  # an item that ends too early fails at no word
        called = f.text[method.start() : f.at + 1] if f.word == "(" else method[0]
        return rules.not_in_the_language(f.span(*method.span()), called, _METHODS, None)
    return None


def _infix(f: Failure, parser: Parser) -> Diagnostic | None:
    start, end, call = (None if f.text.startswith("op") else as_call(f.text, f.at)) or (0, 0, None)
    xor = f.text[start:end]
    return rules.not_in_the_language(f.span(start, end), xor, "a function of two: xor(a, b)", call) if xor else None


def _item(f: Failure, parser: Parser) -> Diagnostic | None:
    if f.at == 0:
        match = _WORD.match(f.text)
        if match[0] in _FOREIGN:
            return None
        return rules.unknown_item(f.span(*match.span()), match[0], _near(match[0], rules.ITEMS, 0.6))
    if f.word in rules.ITEMS and "$END" in f.accepts:
        line = f.text.rfind("\n", 0, f.at) + 1
        blank = f.span(line, f.at) if not f.text[line : f.at].strip() else None
        return rules.item_not_in_column_one(f.here, Edit(blank, "") if blank else Edit(f.span(f.at, f.at), "\n"))
    return None


def _keyword(f: Failure, parser: Parser) -> Diagnostic | None:
    named = f.word in parser.keywords and f.accepts & {"NAME", "KEY"}
    if named and _gain(f, parser, f.at, f.end, f"{f.word}_"):
        return rules.keyword_as_name(f.here, f.word)
    return None


def _misspelt(f: Failure, parser: Parser) -> Diagnostic | None:
    wanted = [k for k, terminal in parser.keywords.items() if terminal in f.accepts]
    here, last = _WORD.match(f.text, f.at), f.last_word
    for match, words, cutoff in ((here, wanted, 0.6), (last, parser.keywords, 0.75)):
        near = match and match[0] not in parser.keywords and _meant(match[0], words, cutoff)
        if near and _gain(f, parser, *match.span(), near):
            return rules.misspelt_keyword(f.span(*match.span()), match[0], near)
    return None


def _with(f: Failure, parser: Parser) -> Diagnostic | None:
    last = f.last_word
    places = [f.at] if f.word == "{" and "_WITH" in f.accepts else []
    if last and last[0] not in parser.keywords and "=" not in parser.spelling.get(f.found, ""):
        places.append(last.start())
    for place in places:
        if _gain(f, parser, place, place, "with "):
            end = f.end if place == f.at else last.end()
            return rules.missing_with(f.span(place, end))
    return None


def _in_context(f: Failure, parser: Parser) -> Diagnostic | None:
    """Mistakes that only one construct invites."""
    if f.text.startswith("op") and f.word == ":" and "INOUT" in f.accepts:
        return rules.parameter_type(f.here)
    if f.word == ":" and "LBRACE" in f.accepts:
        edits = in_braces(f.text, f.at, unclosed)
        return rules.colon_block(f.here, tuple(Edit(f.span(start, end), text) for start, end, text in edits))
    if f.word == "{" and "_ARROW" in f.accepts and f.text.startswith("op"):
        return rules.missing_result(f.here)
    if f.text.startswith("tensor") and f.word == "@":
        if first := re.search(r"@\s*(\w+|\([^()]*\))\s*$", f.text[: f.at]):
            return rules.chained_placement(f.here, f.span(*first.span(1)))
    return None


def _mark(f: Failure, parser: Parser) -> Diagnostic | None:
    """One mark is wrong, missing or too many: whichever gets the parser furthest, in that order if equally far."""
    spelt = {parser.spelling.get(t, "") for t in f.accepts} | ({"=="} if "CMP" in f.accepts else set())
    guesses: list[tuple[int, int, str]] = []
    if f.text[f.at - 1 : f.end] == "==":
        guesses.append((f.at - 1, f.end, "="))
    if f.word in _MARKS or f.word in ".-<>":
        guesses += [(f.at, f.end, m) for m in _MARKS if m in spelt and m != f.word]
    guesses += [(f.at, f.at, m if m == "," else f" {m} ") for m in (*_CLOSERS, *_MARKS, *_CLOSER) if m in spelt]
    if f.word in _CLOSER:
        guesses[:0] = [(f.at, f.end, m) for m in _CLOSER if m in spelt]
    if f.word in _CLOSERS:
        guesses += [(f.at, f.end, m) for m in _CLOSERS if m in spelt] + [(f.at, f.end, "")]
    guess = _best(f, parser, guesses)
    if guess is None:
        return None
    start, end, text = guess
    mark = text.strip()
    if not mark:
        return rules.stray_bracket(f.here, f.word)
    if end > start:
        return rules.wrong_separator(f.span(start, end), f.text[start:end], mark)
    place = f.span(f.before, f.before)
    if mark in _CLOSERS:
        opener = unclosed(f.text[: f.at])
        return rules.missing_bracket(place, mark, f.span(opener, opener + 1) if opener is not None else None)
    return rules.missing_bracket(f.here, mark, None) if mark in _CLOSER else _punctuation(f, parser, place, mark)


def _punctuation(f: Failure, parser: Parser, place: Span, mark: str) -> Diagnostic:
    """A mark is surely the one that is missing if the whole item parses with it."""
    text = mark if mark == "," else f" {mark} "
    return rules.missing_punctuation(place, mark, parser.reach(f.text[: f.at] + text + f.text[f.at :]) > len(f.text))


def _stray(f: Failure, parser: Parser) -> Diagnostic | None:
    if f.word in _CLOSERS and all(_CLOSER[mark] != f.word for mark, _ in _opened(f.text[: f.at])):
        return rules.stray_bracket(f.here, f.word)
    return None


def _early_end(f: Failure, parser: Parser) -> Diagnostic | None:
    opener = unclosed(f.text) if f.found == "$END" else None
    if opener is None:
        return None
    return rules.missing_bracket(f.here, _CLOSER[f.text[opener]], f.span(opener, opener + 1))


DETECTORS: tuple[Callable[[Failure, Parser], Diagnostic | None], ...] = (
    _string, _non_ascii, _item, _unit, _number, _foreign, _infix, _keyword, _misspelt, _in_context, _with, _early_end,
    _mark, _stray,
)  # fmt: skip


def _unexpected(f: Failure, parser: Parser) -> Diagnostic:
    kinds = {_KINDS.get(t) or f"`{parser.spelling.get(t, t)}`" for t in f.accepts}
    wanted = sorted(kinds, key=lambda w: (w[0] == "`", w))
    if f.found == "$END":
        return rules.unexpected_text(f.here, "end of the item", wanted)
    match = _WORD.match(f.text, f.at)
    start, end = (f.at, max(f.end, match.end())) if match else (f.at, f.end)
    text = f.text[start:end]
    found = f"`{text}`" if text.isprintable() else f"character U+{ord(text[0]):04X}"
    return rules.unexpected_text(f.span(start, end), found, wanted)
