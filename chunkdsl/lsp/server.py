"""`chunkdsl lsp`: requests and notifications over stdio, and when findings are worked out.

A failure in an answer is logged and answered with nothing: the next request is served. `checks.py` says when a text is
checked.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

import chunkdsl
from chunkdsl.crash import explain_crash
from chunkdsl.editor.lint import Lint
from chunkdsl.editor.relint import CLEAN, lint
from chunkdsl.editor.standing import warm
from chunkdsl.lsp import features
from chunkdsl.lsp.checks import Checks, Watch
from chunkdsl.lsp.documents import Document


class Server(LanguageServer):
    """`documents`: the open ones, by URI."""

    def __init__(self) -> None:
        # The whole text travels with each change: the server then holds exactly what the editor holds.
        super().__init__("chunkdsl", chunkdsl.__version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.documents: dict[str, Document] = {}
        self.hints = True
        self._checks = Checks(_first_answer, _whole_answer, _prepare, self._publish, self._log)

    def put(self, uri: str, version: int, text: str) -> None:
        """Take a text and have it checked."""
        before = self.documents.get(uri)
        encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
        path = to_fs_path(uri) or uri
        self.documents[uri] = Document(uri, path, version, text, encoding, before.lint if before else None)
        self._checks.start(uri, self.documents[uri])

    def put_again(self, uri: str) -> None:
        """Have a text checked as if nothing were known of it: files that it names may have changed."""
        if (document := self.documents.get(uri)) is not None:
            CLEAN.forget()
            document.before = None
            self._checks.start(uri, document)

    def drop(self, uri: str) -> None:
        self._checks.stop(uri)
        self.documents.pop(uri, None)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def _publish(self, document: Document, found: Lint) -> None:
        document.lint = found
        shown = features.diagnostics(document, document.report())
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, shown, document.version))

    def _log(self, error: Exception) -> None:
        text = f"{explain_crash(error).message}"
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, text))

    def answers(self, method: str, options=None, otherwise: object = None) -> Callable:
        """Decorates a function of (document, params) as the answer to a request about a text document."""

        def decorate(function: Callable) -> Callable:
            @wraps(function)
            def answer(params):
                document = self.documents.get(params.text_document.uri)
                if document is None:
                    return otherwise
                try:
                    return function(document, params)
                except JsonRpcInvalidParams:
                    raise
                except Exception as error:
                    self._log(error)
                    return otherwise

            return self.feature(method, options)(answer)

        return decorate


def _first_answer(document: Document, watch: Watch) -> Lint:
    return lint(document.path, document.text, document.before, watch)


def _whole_answer(document: Document, watch: Watch) -> Lint:
    return lint(document.path, document.text, None, watch)


def _prepare(document: Document, watch: Watch) -> None:
    """What the next keystroke would otherwise wait for."""
    warm(document.text, watch)
    # What an open document keeps (trees, findings) holds no cycles. The collector would walk through all of it between
    # two keystrokes, which takes longer than the answer.
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def make_server() -> Server:
    """A server with every feature, not yet started."""
    server = Server()

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.hints = _wants_hints(params.initialization_options, server.hints)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configure(params: lsp.DidChangeConfigurationParams) -> None:
        server.hints = _wants_hints(params.settings, server.hints)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.put(params.text_document.uri, params.text_document.version, params.text_document.text)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        if params.content_changes:
            server.put(params.text_document.uri, params.text_document.version, params.content_changes[-1].text)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        server.put_again(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.drop(params.text_document.uri)

    server.answers(lsp.TEXT_DOCUMENT_HOVER)(lambda d, p: features.hover(d, p.position))
    server.answers(lsp.TEXT_DOCUMENT_DEFINITION)(lambda d, p: features.definition(d, p.position))
    server.answers(lsp.TEXT_DOCUMENT_REFERENCES)(lambda d, p: features.references(d, p.position))
    server.answers(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(lambda d, p: features.symbols(d))
    server.answers(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=list("=,@({ ")))(
        lambda d, p: features.completion(d, p.position)
    )
    server.answers(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(["(", ","]))(
        lambda d, p: features.signature(d, p.position)
    )
    server.answers(lsp.TEXT_DOCUMENT_FORMATTING)(lambda d, p: features.formatting(d))
    server.answers(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]))(
        lambda d, p: features.code_actions(d, p.range)
    )
    server.answers(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, features.LEGEND)(lambda d, p: features.semantic_tokens(d))
    server.answers(lsp.TEXT_DOCUMENT_INLAY_HINT)(
        lambda d, p: features.inlay_hints(d, p.range) if server.hints else []
    )
    server.answers(lsp.TEXT_DOCUMENT_CODE_LENS, lsp.CodeLensOptions(resolve_provider=True))(
        lambda d, p: features.code_lenses(d)
    )
    server.answers(lsp.TEXT_DOCUMENT_PREPARE_RENAME)(lambda d, p: features.prepare_rename(d, p.position))

    @server.answers(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def rename(document: Document, params: lsp.RenameParams):
        try:
            return features.rename(document, params.position, params.new_name)
        except ValueError as error:
            raise JsonRpcInvalidParams(str(error)) from None

    @server.feature(lsp.CODE_LENS_RESOLVE)
    def resolve(lens: lsp.CodeLens) -> lsp.CodeLens:
        document = server.documents.get(lens.data["uri"])
        try:
            return features.resolve_lens(document, lens) if document is not None else lens
        except Exception as error:
            server._log(error)
            return lens

    return server


def _wants_hints(options: object, now: bool) -> bool:
    """`{"inlayHints": false}`, also inside of `{"chunkdsl": ...}`, as editors send it."""
    if not isinstance(options, dict):
        options = vars(options) if hasattr(options, "__dict__") else {}
    inner = options.get("chunkdsl", options)
    if not isinstance(inner, dict):
        inner = getattr(inner, "__dict__", {}) or (inner._asdict() if hasattr(inner, "_asdict") else {})
    wanted = inner.get("inlayHints", now)
    return wanted if isinstance(wanted, bool) else now
