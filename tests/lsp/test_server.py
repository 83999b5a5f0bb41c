"""The server over stdio, as an editor drives it."""

import pytest
from editor_client import Editor, Failed

from chunkdsl.diagnostics import Report
from chunkdsl.pipeline import check_one
from chunkdsl.source import Source
from chunkdsl.syntax.format import format_source

NAME = "mlp.chunk"
SPEC = """# \u00e4\U0001f600 sequence-parallel
mesh tp[8] over nvlink
dim M = 1..4096
dim H = 1024
tensor x  : bf16[M @ tp, H]   # \U0001f600\U0001f600
tensor w1 : bf16[2048 @ tp, H]
tensor w2 : bf16[H, 2048 @ tp]
policy gather { chunk = 256 along M, via = copy_engine }

op mlp(x, w1, w2) -> y {
    h = gelu(all_gather(x) @ w1.T)      with gather
    y = reduce_scatter(h @ w2.T, M)
}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    editor = Editor(tmp_path_factory.mktemp("lsp"))
    yield editor
    assert editor.close() == 0


@pytest.fixture
def editor(running):
    running.open(NAME, SPEC)
    yield running
    running.notify("textDocument/didClose", {"textDocument": {"uri": running.uri(NAME)}})


def text_at(editor, where):
    start, end = where["start"], where["end"]
    line = editor.texts[NAME].split("\n")[start["line"]].encode("utf-16-le")
    assert start["line"] == end["line"]
    return line[2 * start["character"] : 2 * end["character"]].decode("utf-16-le")


def test_findings_are_those_of_check(editor):
    assert editor.findings(NAME) == []
    wrong = SPEC.replace("reduce_scatter(h @ w2.T, M)", "/* */ h").replace("M @ tp, H]   #", "N @ tp, H]  #")
    for text in (wrong, SPEC.replace("1..4096", "4"), SPEC.replace("all_gather(x)", "x")):
        editor.change(NAME, text)
        report = check_one(Report(Source(NAME, text)))
        found = editor.findings(NAME)
        assert [(f["code"], f["severity"]) for f in found] == [
            (d.code, {"error": 1, "warning": 2, "note": 3}[d.severity.value]) for d in report.diagnostics]
        for f, d in zip(found, report.diagnostics, strict=True):
            assert text_at(editor, f["range"]) == report.source.slice(d.span)


def test_the_second_place_is_related_information(editor):
    editor.change(NAME, SPEC + "tensor x : bf16[H]  # \U0001f600\n")
    (found,) = editor.findings(NAME)
    (related,) = found["relatedInformation"]
    assert found["code"] == "CD246" and related["location"]["uri"] == editor.uri(NAME)
    assert related["location"]["range"]["start"] == editor.position(NAME, "x  : bf16")


def test_a_quick_fix_mends(editor):
    editor.change(NAME, SPEC.replace("gelu(", "gleu("))
    (found,) = editor.findings(NAME)
    (action,) = editor.ask("codeAction", NAME, range=found["range"], context={"diagnostics": [found]})
    assert action["kind"] == "quickfix" and action["title"] == "write `gelu` (CD244)"
    assert editor.apply(NAME, action["edit"]["changes"][editor.uri(NAME)]) == SPEC


def test_completion_of_names_keys_values_and_what_mends(editor):
    text = SPEC.replace("    y = reduce_scatter(h @ w2.T, M)", "    p = h @ w2.T\n    y = ")
    editor.change(NAME, text)
    offered = editor.ask("completion", NAME, "    y = ", 8)
    labels = [c["label"] for c in sorted(offered, key=lambda c: c["sortText"])]
    assert {"x", "h", "p", "gelu", "reduce_scatter"} <= set(labels)
    assert {"all_reduce(p)", "reduce_scatter(p, M)"} <= set(labels[:6])
    assert next(c for c in offered if c["label"] == "p")["detail"] == "bf16[M, 1024] sum tp"

    def labels_at(part):
        return {c["label"] for c in editor.ask("completion", NAME, part, len(part))}

    assert "route" in labels_at("policy gather {") and "via" not in labels_at("M, ")
    assert labels_at("via = ") >= {"tma", "ldst", "copy_engine", "auto"}
    assert labels_at("bf16[M @ ") == {"tp", "zigzag(tp)", "cyclic(tp, 128)"}
    assert labels_at("over ") == {"nvlink", "rdma"}
    assert labels_at("tensor x  : ") == {"bf16", "f16", "f32", "i32", "i64"} and labels_at("# \u00e4") == set()
    assert {"op", "tensor"} <= labels_at("\n"), "items start in column one"


def test_signature_help(editor):
    editor.change(NAME, SPEC.replace("(h @ w2.T, M)", "(h @ gelu(w2.T), "))
    found = editor.ask("signatureHelp", NAME, "gelu(w2.T), ", 12)
    assert found["signatures"][0]["label"] == "reduce_scatter(t, D)" and found["activeParameter"] == 1
    assert editor.ask("signatureHelp", NAME, "dim M", 5) is None


@pytest.mark.parametrize("part, after, wanted", [
    ("all_gather(x)", 3, ["bf16[M, 1024]", "Replicate", "[4096, 1024], 8 MiB at M = 4096", "chunk = 256 along M",
                          "2 chunks of 256 rows (512 KiB) for each of 8 shards", "us of communication exposed"]),
    ("h @ w2", 0, ["h : bf16[M, 2048 @ tp]", "Shard(1) over tp", "[4096, 256], 2 MiB"]),
    ("h @ w2", 2, ["bf16[M, 1024] sum tp", "Partial over tp"]),
    ("tensor x", 7, ["x : bf16[M @ tp, 1024]", "Shard(0) over tp", "each of 8 ranks holds [512, 1024], 1 MiB"]),
    ("op mlp", 4, ["op mlp", "fuse_from = always", "reduce_scatter: route = swizzle"]),
    ("M @ tp", 0, ["dim M = 1..4096"]),
    ("chunk = 256", 1, ["unit of transfer"]), ("copy_engine", 3, ["via = ", "what moves the bytes"]),
    ("with gather", 6, ["policy gather { chunk"]),
])  # fmt: skip
def test_hover(editor, part, after, wanted):
    shown = editor.ask("hover", NAME, part, after)["contents"]["value"]
    assert all(w in shown for w in wanted), shown


def test_hover_in_gradients_heads_and_between_alike_names(editor):
    text = SPEC + "dim MM = 1..8\ntensor z : bf16[MM, H]\ngradient mlp -> dx, dw1, dw2 saves x, h\n"
    editor.change(NAME, text)

    def shown(part, after=0):
        return editor.ask("hover", NAME, part, after)["contents"]["value"]

    assert "y : bf16[M @ tp, 1024]" in shown("-> y", 3)
    assert "h : bf16[M, 2048 @ tp]" in shown("saves x, h", 9) and "x : bf16[M @ tp, 1024]" in shown("saves x", 6)
    assert "dw1 : bf16[2048 @ tp, 1024]" in shown("dx, dw1", 4)
    assert "op mlp_backward" in shown("gradient mlp") and "exposed" in shown("gradient mlp")
    assert "op mlp\n" in shown("gradient mlp", 9) and editor.ask("hover", NAME, "saves", 0) is None
    assert shown("z : bf16").rstrip().endswith("at MM = 8")
    forward, backward = (editor.request("codeLens/resolve", lens)["command"]["title"]
                         for lens in editor.ask("codeLens", NAME))
    assert "mlp_backward_" in backward and "exposed" in backward and "mlp_backward_" not in forward


def test_hover_in_an_op_that_is_not_right_yet(editor):
    editor.change(NAME, SPEC.replace("reduce_scatter(h @ w2.T, M)", "reduce_scatter("))
    assert "h : bf16[M, 2048 @ tp]" in editor.ask("hover", NAME, "h = gelu", 0)["contents"]["value"]
    assert editor.ask("hover", NAME, "# \u00e4", 2) is None


def test_definition_and_references(editor):
    place = editor.ask("definition", NAME, "gelu(all_gather(x)", 16)["range"]
    assert place["start"] == editor.position(NAME, "x  : bf16") and text_at(editor, place) == "x"
    found = editor.ask("references", NAME, "H]", 0, context={"includeDeclaration": True})
    assert len(found) == 4 and all(text_at(editor, r["range"]) == "H" for r in found)
    found = editor.ask("references", NAME, "h @", 0, context={"includeDeclaration": True})
    assert [text_at(editor, r["range"]) for r in found] == ["h", "h"]


def test_rename(editor):
    edits = editor.ask("rename", NAME, "dim M", 4, newName="tokens")["changes"][editor.uri(NAME)]
    renamed = editor.apply(NAME, edits)
    assert renamed.count("tokens") == SPEC.count("M @ tp") + 3 and "256 along tokens" in renamed
    assert text_at(editor, editor.ask("prepareRename", NAME, "w1 :", 1)) == "w1"
    assert editor.ask("prepareRename", NAME, "gelu", 1) is None
    for name, why in (("step", "keyword"), ("2x", "not a name"), ("w1", "already")):
        with pytest.raises(Failed, match=why):
            editor.ask("rename", NAME, "dim M", 4, newName=name)


def test_formatting_is_that_of_fmt(editor):
    untidy = SPEC.replace(" : ", ":").replace("\n    ", "\n  ")
    editor.change(NAME, untidy)
    edits = editor.ask("formatting", NAME, options={"tabSize": 4, "insertSpaces": True})
    report = Report(Source(NAME, untidy))
    editor.change(NAME, editor.apply(NAME, edits))
    assert editor.texts[NAME] == format_source(report.source, report)
    assert editor.ask("formatting", NAME, options={"tabSize": 4, "insertSpaces": True}) == []
    editor.change(NAME, "dim M = = 4\n")
    assert editor.ask("formatting", NAME, options={"tabSize": 4, "insertSpaces": True}) == []


def test_symbols(editor):
    found = editor.ask("documentSymbol", NAME)
    assert [s["name"] for s in found] == ["tp", "M", "H", "x", "w1", "w2", "gather", "mlp"]
    assert [c["name"] for c in found[-1]["children"]] == ["h", "y"]


def test_semantic_tokens(editor):
    data = editor.ask("semanticTokens/full", NAME)["data"]
    legend = editor.capabilities["semanticTokensProvider"]["legend"]["tokenTypes"]
    line = character = 0
    found = []
    for i in range(0, len(data), 5):
        line, character = line + data[i], data[i + 1] + (character if data[i] == 0 else 0)
        end = {"line": line, "character": character + data[i + 2]}
        word = text_at(editor, {"start": {"line": line, "character": character}, "end": end})
        found.append((word, legend[data[i + 3]], data[i + 4]))
    assert ("tp", "namespace", 1) in found and ("x", "parameter", 0) in found and ("h", "variable", 1) in found
    assert ("mlp", "function", 1) in found and ("M", "typeParameter", 0) in found


def test_inlay_hints_and_their_switch(editor):
    shown = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    hints = editor.ask("inlayHint", NAME, range=shown)
    assert [h["label"] for h in hints] == [": bf16[M, 2048 @ tp]", ": bf16[M @ tp, 1024]"]
    assert hints[0]["position"] == editor.position(NAME, "h = gelu", 1)
    for on in (False, True):
        editor.notify("workspace/didChangeConfiguration", {"settings": {"chunkdsl": {"inlayHints": on}}})
        assert bool(editor.ask("inlayHint", NAME, range=shown)) == on


def test_code_lenses_say_how_rows_travel(editor):
    (lens,) = editor.ask("codeLens", NAME)
    title = editor.request("codeLens/resolve", lens)["command"]["title"]
    assert "2 chunks of 256 rows (512 KiB) for each of 8 shards" in title and "exposed" in title


def test_silenced_findings_and_settings(editor):
    (editor.folder / "pyproject.toml").write_text('[tool.chunkdsl]\nignore = ["CD244"]\n')
    try:
        editor.change(NAME, SPEC.replace("gelu(", "gleu(").replace("with gather", "with gathr # chunk: ignore[CD260]"))
        assert editor.findings(NAME) == []
    finally:
        (editor.folder / "pyproject.toml").unlink()


def test_after_many_fast_changes_the_findings_are_of_the_last(editor):
    for i in range(30):
        editor.change(NAME, SPEC.replace("dim H = 1024", f"dim step{i} = 1024"))
    editor.change(NAME, SPEC + "\ndim step = 1024\n")
    assert [f["code"] for f in editor.findings(NAME)] == ["CD108"]
    versions = [p["version"] for p in editor.published if p["uri"] == editor.uri(NAME) and "version" in p]
    assert versions == sorted(versions), "what was found in an older text is never told later"


def test_any_text_gets_an_answer_to_every_request(editor):
    shown = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    for text in ("", "\n", "op", "op f(", "op f(x) -> y { y = ", "\0\r\u2028\U0001f600",
                 "mesh tp[\r\ndim M = 4\r\n#", "op f(x) {"):
        editor.change(NAME, text)
        editor.findings(NAME)
        for line in range(3):
            where = {"textDocument": {"uri": editor.uri(NAME)}, "position": {"line": line, "character": 99}}
            for method in ("hover", "completion", "definition", "signatureHelp", "prepareRename"):
                editor.request(f"textDocument/{method}", where)
        for method in ("documentSymbol", "codeLens", "semanticTokens/full"):
            editor.ask(method, NAME)
        editor.ask("inlayHint", NAME, range=shown)
        editor.ask("formatting", NAME, options={"tabSize": 4, "insertSpaces": True})
    assert editor.log == []


FAULTY = """
from chunkdsl.editor import lint
from chunkdsl.lsp import features
real = lint.STAGES
def read(checked):
    if "dim bomb" in checked.report.source.text:
        raise RuntimeError("boom")
    return real[0](checked)
lint.STAGES = (read, *real[1:])
features.hover = lambda document, position: 1 // 0
from chunkdsl.cli import main; main(['lsp'])
"""


def test_a_failure_inside_does_not_end_the_server(tmp_path):
    editor = Editor(tmp_path, FAULTY, options={"inlayHints": False})
    editor.open(NAME, SPEC + "dim bomb = 4\n")
    assert [f["code"] for f in editor.findings(NAME)] == ["CD001"]
    assert editor.ask("hover", NAME, "dim M", 4) is None and "ZeroDivisionError" in editor.log[-1]
    editor.change(NAME, SPEC + "\ndim step = 1024\n")
    assert [f["code"] for f in editor.findings(NAME)] == ["CD108"]
    shown = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    assert editor.ask("inlayHint", NAME, range=shown) == []
    assert editor.close() == 0


def test_a_rename_after_which_the_spec_has_an_error_is_refused(editor):
    for part, name, why in (("h = gelu", "H", "something else"), ("dim M", "y", "already"),
                            ("op mlp", "close", "close"), ("x  : bf16", "rank", None), ("tp[8]", "h", "twice")):
        if why is None:
            assert editor.ask("rename", NAME, part, 0, newName=name)
            continue
        with pytest.raises(Failed, match=why):
            editor.ask("rename", NAME, part, {"dim M": 4, "op mlp": 3}.get(part, 0), newName=name)
