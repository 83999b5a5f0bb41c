"""Answers to requests: from a document and a place in it to values of the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial

from lsprotocol import types as lsp

from chunkdsl.diagnostics import Diagnostic, Edit, Label, Report, Severity
from chunkdsl.editor import complete, names, values
from chunkdsl.editor.reference import functions, keys, layouts, policies
from chunkdsl.editor.relint import lint
from chunkdsl.editor.segments import Segment, declares
from chunkdsl.editor.uses import item_of, uses_of
from chunkdsl.ir.dump import type_text
from chunkdsl.ir.graph import Program
from chunkdsl.ir.types import TensorType
from chunkdsl.lsp.documents import Document
from chunkdsl.mend import edited
from chunkdsl.pipeline import Checked
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes
from chunkdsl.syntax.format import format_source

TOKENS = {
    "axis": "namespace", "dim": "typeParameter", "tensor": "parameter", "policy": "macro", "op": "function",
    "plan": "function", "kernel": "function", "value": "variable", "parameter": "parameter", "variable": "variable",
}  # fmt: skip
LEGEND = lsp.SemanticTokensLegend(list(dict.fromkeys(TOKENS.values())), ["declaration"])
_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.NOTE: lsp.DiagnosticSeverity.Information,
}
_SYMBOLS = {
    "mesh": lsp.SymbolKind.Namespace, "dim": lsp.SymbolKind.Constant, "tensor": lsp.SymbolKind.Variable,
    "policy": lsp.SymbolKind.Object, "op": lsp.SymbolKind.Function, "plan": lsp.SymbolKind.Function,
    "kernel": lsp.SymbolKind.Function, "use": lsp.SymbolKind.Function, "gradient": lsp.SymbolKind.Function,
}  # fmt: skip
_COMPLETIONS = {
    "keyword": lsp.CompletionItemKind.Keyword, "function": lsp.CompletionItemKind.Function,
    "tensor": lsp.CompletionItemKind.Variable, "value": lsp.CompletionItemKind.Variable,
    "dim": lsp.CompletionItemKind.Constant, "axis": lsp.CompletionItemKind.Module,
    "policy": lsp.CompletionItemKind.Struct, "key": lsp.CompletionItemKind.Property,
    "option": lsp.CompletionItemKind.EnumMember, "dtype": lsp.CompletionItemKind.TypeParameter,
}  # fmt: skip


def diagnostics(document: Document, report: Report) -> list[lsp.Diagnostic]:
    @cache  # hundreds of findings of one cause have a place in common
    def related(x: Label) -> lsp.DiagnosticRelatedInformation:
        return _related(document, x)

    return [_diagnostic(document, d, related) for d in report.diagnostics]


def _related(document: Document, x: Label) -> lsp.DiagnosticRelatedInformation:
    return lsp.DiagnosticRelatedInformation(lsp.Location(document.uri, document.lines.range(x.span)), x.message)


def _diagnostic(
    document: Document, d: Diagnostic, related: Callable[[Label], lsp.DiagnosticRelatedInformation]
) -> lsp.Diagnostic:  # fmt: skip
    return lsp.Diagnostic(
        range=document.lines.range(d.span) if d.span else lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)),
        message="\n".join(part for part in dict.fromkeys((d.message, d.label, d.help)) if part),
        severity=_SEVERITIES[d.severity],
        code=d.code,
        source="chunkdsl",
        related_information=[related(x) for x in d.labels if x.message] or None,
        tags=[lsp.DiagnosticTag.Unnecessary] if d.name == "unused-ignore" else None,
    )


def code_actions(document: Document, span_range: lsp.Range) -> list[lsp.CodeAction]:
    """The fixes of findings that touch a range; preferred where they are safe."""
    report, wanted = document.report(), document.lines.span(span_range)
    found = []
    for d in report.diagnostics if report is not None else ():
        if d.span is None or d.span.end < wanted.start or wanted.end < d.span.start:
            continue
        for fix in d.fixes:
            found.append(
                lsp.CodeAction(
                    title=f"{fix.title} ({d.code})",
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[_diagnostic(document, d, partial(_related, document))],
                    is_preferred=fix.safe,
                    edit=_edits(document, fix.edits),
                )
            )
    return found


def _edits(document: Document, edits) -> lsp.WorkspaceEdit:
    return lsp.WorkspaceEdit(changes={document.uri: [_edit(document, e) for e in edits]})


def _edit(document: Document, edit: Edit) -> lsp.TextEdit:
    return lsp.TextEdit(document.lines.range(edit.span), edit.text)


def hover(document: Document, position: lsp.Position) -> lsp.Hover | None:
    offset = document.lines.offset(position)
    lines = _hover_lines(document, offset)
    if not lines:
        return None
    head, *more = lines
    text = f"```chunk\n{head}\n```\n\n" + "  \n".join(more)
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text.rstrip()))


def _hover_lines(document: Document, offset: int) -> list[str]:
    index = document.index
    i = index.segment_at(offset)
    if i is None:
        return []
    found = index.at(offset)
    word = names.word_at(document.text, offset)
    kind = index.kind(*found) if found else ""
    part, made = values.typed(document.path, index.segments, i)
    if kind == "op" or word == "gradient":
        op = found[1].name if found else _op_of(index.segments[i], made)
        return [f"op {op}", *values.chunks(document.path, part.text, op), *values.choices(made, op)] if op else []
    if kind in ("tensor", "value") or (not kind and item_of(index.segments[i].text) is None):
        program, type = _named(document, offset, word, kind)
        if program is not None and type is not None:
            return [f"{word} : {type_text(type, program.mesh)}", values.placement_text(program, type),
                    values.local_text(program, type)]
    if kind:
        where = index.definition(offset)
        line = document.text[document.text.rfind("\n", 0, where.start) + 1 :].partition("\n")[0]
        return [line.partition("#")[0].strip()]
    value = values.value_at(document.path, index.segments, i, offset)
    if value is not None and index.segments[i].text.startswith("op"):
        program, node, op = value
        lines = values.describe(program, node)
        if node.kind in ("all_gather", "reduce_scatter", "all_reduce"):
            lines += values.chunks(document.path, part.text, op)
            lines += [c for c in values.choices(made, op) if f": {node.kind}" in c]
        return lines
    if word in functions():
        return [functions()[word].signature, functions()[word].operands, functions()[word].result]
    if word in layouts():
        return [layouts()[word]]
    if word and (key := keys().get(word) or keys().get(names.given_to(document.text, index.segments[i].start, offset))):
        return [f"{key.name} = {' | '.join(key.values)}", key.meaning, f"for {key.applies}; auto: {key.automatic}"]
    return [f"policy {word} {{ {policies()[word]} }}"] if word in policies() else []


def _op_of(segment: Segment, made: Checked) -> str:
    """The op that an item is, or derives; ""."""
    return next(iter(declares(segment.text)), "") or values.backward(made)


def _named(document: Document, offset: int, word: str, kind: str) -> tuple[Program | None, TensorType | None]:
    """The type of the tensor or value that a place names."""
    index, i = document.index, document.index.segment_at(offset)
    where = index.definition(offset) if kind == "value" else None
    behind = document.text.find("\n", offset) + 1 or len(document.text)
    if where is not None and (owner := index.segment_at(where.start)) != i:
        i, behind = owner, document.text.find("\n", where.start) + 1  # `saves u`: bound in the op
    _, made = values.typed(document.path, index.segments, i)
    if kind == "tensor" and made.program is not None:
        return made.program, made.program.tensors.get(word)
    type = values.named_value(made, _op_of(index.segments[i], made), word) if kind == "value" else None
    if type is not None:
        return made.program, type
    program, known = values.bound(document.path, index.segments, i, behind)
    return program, known.get(word)


def definition(document: Document, position: lsp.Position) -> lsp.Location | None:
    span = document.index.definition(document.lines.offset(position))
    return lsp.Location(document.uri, document.lines.range(span)) if span is not None else None


def references(document: Document, position: lsp.Position) -> list[lsp.Location]:
    spans = document.index.references(document.lines.offset(position))
    return [lsp.Location(document.uri, document.lines.range(span)) for span in spans]


def prepare_rename(document: Document, position: lsp.Position) -> lsp.Range | None:
    found = document.index.at(document.lines.offset(position))
    if found is None:
        return None
    return document.lines.range(document.index.span(*found))


def rename(document: Document, position: lsp.Position, new: str) -> lsp.WorkspaceEdit:
    """ValueError where the name cannot be given: also where an error would follow that is not there now."""
    edits = document.index.rename(document.lines.offset(position), new)
    found, before = _errors(document.path, edited(document.text, edits)), _errors(document.path, document.text)
    known = Counter(d.code for d in before)
    for d in found:
        if not known[d.code]:
            raise ValueError(f"with the name `{new}`: {d.message}")
        known[d.code] -= 1
    return _edits(document, edits)


def _errors(path: str, text: str) -> list[Diagnostic]:
    return [d for d in lint(path, text).report().diagnostics if d.severity is Severity.ERROR]


def symbols(document: Document) -> list[lsp.DocumentSymbol]:
    found = []
    for segment in document.index.segments:
        item = item_of(segment.text)
        listed = ", ".join(sorted(declares(segment.text))) or segment.text.partition("\n")[0].strip()
        kind = _SYMBOLS.get(segment.text.split(None, 1)[0], lsp.SymbolKind.Null)
        end = item.span.end if item is not None else len(segment.text.rstrip())
        whole = document.lines.range(Span(segment.start, segment.start + end))
        children = []
        for statement in item.body if isinstance(item, nodes.Op) else ():
            inner = document.lines.range(Span(segment.start + statement.span.start,
                                                    segment.start + statement.span.end))
            title = ", ".join(t.text for t in statement.targets)
            children.append(lsp.DocumentSymbol(title, lsp.SymbolKind.Variable, inner, inner))
        found.append(lsp.DocumentSymbol(listed, kind, whole, whole, children=children))
    return found


def completion(document: Document, position: lsp.Position) -> list[lsp.CompletionItem]:
    offset = document.lines.offset(position)
    return [
        lsp.CompletionItem(
            label=c.text,
            kind=_COMPLETIONS.get(c.kind, lsp.CompletionItemKind.Reference),
            detail=c.detail or None,
            documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, c.text_of_help) if c.text_of_help else None,
            sort_text=f"{0 if c.first else 1}{i:04}",
        )
        for i, c in enumerate(complete.completions(document.path, document.index, document.text, offset))
    ]


def signature(document: Document, position: lsp.Position) -> lsp.SignatureHelp | None:
    found = complete.call_at(document.index, document.text, document.lines.offset(position))
    if found is None:
        return None
    function, argument = found
    parameters = [lsp.ParameterInformation(p) for p in function.parameters]
    shown = lsp.SignatureInformation(function.signature, f"{function.operands}: {function.result}", parameters)
    return lsp.SignatureHelp([shown], 0, min(argument, len(parameters) - 1))


def formatting(document: Document) -> list[lsp.TextEdit]:
    """One edit for the lines that differ; none where the text does not parse."""
    report = Report(Source(document.path, document.text))
    formatted = format_source(report.source, report)
    if formatted is None or formatted == document.text:
        return []
    return [lsp.TextEdit(document.lines.whole(), formatted)]


def semantic_tokens(document: Document) -> lsp.SemanticTokens:
    data: list[int] = []
    line = character = 0
    for i, segment in enumerate(document.index.segments):
        for use in uses_of(segment.text):
            kind = TOKENS.get(document.index.kind(i, use))
            if kind is None:
                continue
            place = document.lines.range(document.index.span(i, use))
            same = place.start.line == line
            data += [place.start.line - line, place.start.character - (character if same else 0),
                     place.end.character - place.start.character, LEGEND.token_types.index(kind), int(use.declares)]
            line, character = place.start.line, place.start.character
    return lsp.SemanticTokens(data)


def inlay_hints(document: Document, shown: lsp.Range) -> list[lsp.InlayHint]:
    """The type of each statement's result, for ops in the part that is shown."""
    wanted, found = document.lines.span(shown), []
    for i, segment in enumerate(document.index.segments):
        if segment.end < wanted.start or wanted.end < segment.start or not segment.text.startswith("op"):
            continue
        for offset, text in values.statement_hints(document.path, document.index.segments, i):
            if wanted.start <= offset <= wanted.end:
                place = document.lines.position(offset)
                found.append(lsp.InlayHint(place, f": {text}", lsp.InlayHintKind.Type, padding_right=False))
    return found


def code_lenses(document: Document) -> list[lsp.CodeLens]:
    """One for each op and gradient, to be resolved when it is seen."""
    found = []
    for segment in document.index.segments:
        if isinstance(item_of(segment.text), nodes.Op | nodes.Gradient):
            place = document.lines.range(Span(segment.start, segment.start))
            found.append(lsp.CodeLens(place, data={"uri": document.uri, "offset": segment.start}))
    return found


def resolve_lens(document: Document, lens: lsp.CodeLens) -> lsp.CodeLens:
    i = document.index.segment_at(lens.data["offset"])
    title = "not built"
    if i is not None:
        part, made = values.typed(document.path, document.index.segments, i)
        name = _op_of(document.index.segments[i], made)
        known = values.schedule_of(made, name) is not None
        title = "; ".join(values.chunks(document.path, part.text, name)) or ("no communication" if known else title)
    lens.command = lsp.Command(title, "")
    return lens
