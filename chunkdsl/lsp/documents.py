"""Open documents: their text, what was found in it last, and the names in it."""

from __future__ import annotations

import os
from functools import cached_property

from chunkdsl.diagnostics import Report
from chunkdsl.editor.lint import Lint
from chunkdsl.editor.names import Index
from chunkdsl.editor.segments import segments
from chunkdsl.lsp.positions import MARK, Lines
from chunkdsl.settings import Settings, read_settings


class Document:
    """One version of a text; another version is another object. `before`: the findings of an earlier version, if they
    are known. `lint`: the latest that are known."""

    def __init__(self, uri: str, path: str, version: int, text: str, encoding: str, before: Lint | None) -> None:
        self.text = text.removeprefix(MARK)
        self.uri, self.path, self.version, self.before = uri, path, version, before
        self.lint = before
        self.lines = Lines(text, encoding)

    @cached_property
    def index(self) -> Index:
        return Index(segments(self.text))

    def report(self) -> Report | None:
        """The findings that the project wants to see; None while there are none for this version."""
        if self.lint is None or self.lint.text != self.text:
            return None
        report = self.lint.report()
        report.keep(_settings(self.path).wants)
        return report


def _settings(path: str) -> Settings:
    folder = os.path.dirname(path)
    return read_settings(folder)[0] if folder and os.path.isdir(folder) else Settings()
