"""Text to syntax tree, item by item. The only user of Lark, with `tables`, which keeps what it builds.

A bad item yields a finding for each of its mistakes that can be told apart and is left out; the others survive. Names
are not resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

import lark
import lark.lexer

from chunkdsl.check import files, syntax
from chunkdsl.diagnostics import Edit, Report
from chunkdsl.resources import read
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes
from chunkdsl.syntax.build import DEPTH, Builder, depth
from chunkdsl.syntax.items import cut, skip_idle
from chunkdsl.syntax.mistakes import Failure, diagnose, head, unclosed
from chunkdsl.syntax.recover import more_mistakes
from chunkdsl.syntax.tables import kept

VERSION = 1
_KEYWORD = re.compile(r"^(\w+)\.2: /([a-z]+)\(\?!\\w\)/$", re.MULTILINE)
_PYTHON = {"True": "PYTHON_BOOLEAN", "False": "PYTHON_BOOLEAN"}


class Grammar:
    """The built parser, and how each of its terminals is spelt. `spelling` maps a terminal's name to the text it
    stands for; `keywords` maps a keyword to its terminal. `extra`: with the items that few specs hold."""

    def __init__(self, *, extra: bool = True, strict: bool = False, start: str = "item") -> None:
        texts = read("grammars", "chunk.lark"), read("grammars", "extra.lark")
        # A keyword of either text is no name in the other, so that both read what they share alike.
        self.keywords = {word: terminal for text in texts for terminal, word in _KEYWORD.findall(text)}
        # interegular is only of use to the strict build, and makes every other one four times slower.
        known, lark.lexer.has_interegular = lark.lexer.has_interegular, strict
        try:
            self._lark = (lark.Lark if strict else kept)(
                "".join(texts) if extra else texts[0],
                parser="lalr",
                lexer="contextual",
                start=start,
                propagate_positions=True,
                maybe_placeholders=True,
                strict=strict,
                lexer_callbacks={"NAME": self._refuse_keyword},
            )
        finally:
            lark.lexer.has_interegular = known
        self.spelling = {terminal: word for word, terminal in self.keywords.items()}
        for terminal in self._lark.terminals:
            if terminal.pattern.type == "str":
                self.spelling[terminal.name] = terminal.pattern.value

    def _refuse_keyword(self, token: lark.Token) -> lark.Token:
        token.type = self.keywords.get(token) or _PYTHON.get(token, token.type)
        return token

    def tree(self, text: str, base: int = 0) -> lark.Tree | Failure:
        """The tree of one item, or where its parse stopped."""
        try:
            return self._lark.parse(text)
        except lark.exceptions.UnexpectedInput as error:
            parser = error.interactive_parser
            found = getattr(error, "token", None)
            before = _end(parser.parser_state.value_stack)
            if found is None:
                at, end, kind = error.pos_in_stream, error.pos_in_stream + 1, ""
            elif found.type == "$END":
                at, end, kind = before, before, "$END"
            else:
                at, end, kind = found.start_pos, found.end_pos, found.type
            return Failure(text, base, at, end, kind, before, frozenset(parser.accepts()))

    def tokens(self, text: str) -> Iterator[lark.Token]:
        """The tokens of one item, which must parse."""
        return self._lark.parse_interactive(text).iter_parse()

    def reach(self, text: str) -> int:
        """The offset of the token at which the parse of an item stops; past the end if it does not stop."""
        result = self.tree(text)
        if not isinstance(result, Failure):
            return len(text) + 1
        return len(text) if result.found == "$END" else result.at


@cache
def grammar() -> Grammar:
    """The parser of items, once in a process (about 0.01 s, the first time on a machine 0.08 s)."""
    return Grammar()


@cache
def short_grammar() -> Grammar:
    """That of most specs (half as long): what it accepts `grammar` reads alike, and knows better why it would not."""
    return Grammar(extra=False)


def tree_of(text: str, base: int) -> lark.Tree | Failure:
    """The tree of one item, or where its parse stopped."""
    tree = short_grammar().tree(text, base)
    return grammar().tree(text, base) if isinstance(tree, Failure) else tree


def parse(source: Source, report: Report, tree_of: Callable[[str, int], lark.Tree | Failure] = tree_of) -> nodes.File:
    """The items of a source that are well-formed, in order; findings in `report` for each that is not.
    `tree_of`: another one that remembers, for instance."""
    text = source.text
    lead, cuts = cut(text)
    if lead is not None:
        word = _first_word(text, lead)
        line = text.rfind("\n", 0, word.start) + 1
        indented = text[word.start].isalpha() and not text[line : word.start].strip()
        report.add(syntax.item_not_in_column_one(word, Edit(Span(line, word.start), "") if indented else None))
    items: list[nodes.Item] = []
    at = 0
    while at < len(cuts):
        report.watch()
        span, at = cuts[at], at + 1
        tree = tree_of(text[span.start : span.end], span.start)
        if isinstance(tree, Failure) and tree.found == "$END" and unclosed(tree.text) is not None:
            body = at
            while at < len(cuts) and head(text, cuts[at], grammar().keywords) is None:
                at += 1
            if at > body:
                report.add(syntax.unindented_body(_first_word(text, cuts[body])))
                span = span.cover(cuts[at - 1])
                tree = grammar().tree(text[span.start : span.end], span.start)
                if isinstance(tree, Failure):
                    continue
        if isinstance(tree, Failure):
            report.add(found := diagnose(tree, grammar()))
            report.extend(more_mistakes(tree, found, grammar(), grammar().tree))
        elif (item := _build(tree, span, text, report)) is not None:
            items.append(item)
    _check_version(items, report)
    return nodes.File(Span(0, len(text)), tuple(items))


def _end(stack: list) -> int:
    """Where the last text that the parser took ends."""
    for value in reversed(stack):
        place = getattr(value, "meta", value)
        if not getattr(place, "empty", False):  # a rule that matched nothing has no place
            return getattr(place, "container_end_pos", place.end_pos)
    return 0


def _build(tree: lark.Tree, span: Span, text: str, report: Report) -> nodes.Item | None:
    if (levels := depth(tree)) > DEPTH:
        report.add(syntax.nested_too_deeply(_first_word(text, span), levels, DEPTH))
        return None
    builder = Builder(span.start, report)
    item = builder.build(tree)
    return None if builder.failed else item


def _first_word(text: str, span: Span) -> Span:
    start = skip_idle(text, span.start)
    match = re.compile(r"\w+|.", re.DOTALL).match(text, start, span.end)
    return Span(*match.span()) if match else Span(start, start)


def _check_version(items: list[nodes.Item], report: Report) -> None:
    for index, item in enumerate(items):
        if isinstance(item, nodes.Version):
            if index:
                report.add(syntax.misplaced_version(item.span))
            elif item.number != VERSION:
                report.add(files.unsupported_version(item.span, item.number, VERSION))
