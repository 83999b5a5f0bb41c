"""The kept tables: the same parser with and without them, and nothing that goes wrong with a cache is seen."""

import os
from pathlib import Path

import pytest

from chunkdsl.syntax import tables

GRAMMAR = 'start: WORD "!"\nWORD: /[a-z]+/\n%ignore " "\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "chunkdsl"


def parser(grammar: str = GRAMMAR):
    return tables.kept(grammar, parser="lalr", lexer="contextual", propagate_positions=True)


def assert_not_built(monkeypatch) -> None:
    monkeypatch.setattr("lark.lark.load_grammar", lambda *_: pytest.fail("built again"))
    assert parser().parse("c !").children == ["c"]


def test_a_later_parser_reads_what_the_first_one_left(cache, monkeypatch):
    first = parser().parse("ab !")
    assert_not_built(monkeypatch)
    again = parser().parse("ab !")
    assert again == first and again.meta.end_pos == first.meta.end_pos == 4


def test_another_grammar_has_tables_of_its_own(cache):
    parser()
    assert parser(GRAMMAR.replace("!", "?")).parse("ab ?").children == ["ab"]
    assert len(list(cache.glob("*.lark"))) == 2


@pytest.mark.parametrize("content", [b"", b"rubbish\n", b"\x80\x04."])
def test_a_broken_file_is_replaced(cache, content, monkeypatch):
    parser()
    (kept,) = cache.glob("*.lark")
    kept.write_bytes(content)
    assert parser().parse("ab !").children == ["ab"]
    assert_not_built(monkeypatch)


def test_a_half_written_file_is_replaced(cache, monkeypatch):
    parser()
    (kept,) = cache.glob("*.lark")
    kept.write_bytes(kept.read_bytes()[:-100])
    assert parser().parse("ab !").children == ["ab"]
    assert_not_built(monkeypatch)


def test_without_a_folder_to_write_in_it_still_parses(cache, tmp_path):
    cache.parent.joinpath("chunkdsl").write_text("a file where the folder should be")
    assert parser().parse("ab !").children == ["ab"]
    assert not list(tmp_path.glob("*/*"))


def test_without_a_home_it_still_parses(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: (_ for _ in ()).throw(RuntimeError("no home"))))
    assert parser().parse("ab !").children == ["ab"]


def test_a_relative_folder_is_no_folder(monkeypatch):
    """As the specification of the variable says."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert tables.folder() == Path.home() / ".cache" / "chunkdsl"
    assert os.path.isabs(tables.folder())
