import pytest
from lsprotocol.types import Position

from chunkdsl.lsp.positions import Lines
from chunkdsl.source import Span

TEXT = "a\u00e4\U0001f600b\r\n\U0001f600\rc\u2028d\n"


@pytest.mark.parametrize("encoding, places", [
    ("utf-16", {0: (0, 0), 2: (0, 2), 3: (0, 4), 4: (0, 5), 6: (1, 0), 7: (1, 2), 8: (2, 0), 10: (2, 2), 12: (3, 0)}),
    ("utf-32", {3: (0, 3), 7: (1, 1)}), ("utf-8", {2: (0, 3), 3: (0, 7), 7: (1, 4)}),
])  # fmt: skip
def test_offsets_are_positions_in_the_units_agreed_on(encoding, places):
    lines = Lines(TEXT, encoding)
    for offset, (line, character) in places.items():
        assert lines.position(offset) == Position(line, character)
        assert lines.offset(Position(line, character)) == offset


def test_positions_behind_an_end_are_that_end():
    lines = Lines("ab\ncd")
    assert (lines.offset(Position(0, 99)), lines.offset(Position(9, 0))) == (2, 5)
    assert lines.span(lines.whole()) == Span(0, 5)
