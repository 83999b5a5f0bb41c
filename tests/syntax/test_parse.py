from dataclasses import fields
from pathlib import Path

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes as n
from chunkdsl.syntax.items import cut
from chunkdsl.syntax.parse import Grammar, grammar, parse

SPECS = sorted((Path(__file__).parent.parent / "cases" / "language").glob("*.chunk"))


def read(text):
    """The items of a text that must be free of findings."""
    report = Report(Source("x.chunk", text))
    file = parse(report.source, report)
    assert report.diagnostics == ()
    assert file.span == Span(0, len(text))
    return file.items


def codes(text):
    report = Report(Source("x.chunk", text))
    file = parse(report.source, report)
    return [d.code for d in report.diagnostics], file


def walk(part):
    """Every node below, with the nodes of tuples and pairs."""
    if isinstance(part, n.Node):
        yield part
        for field in fields(part):
            yield from walk(getattr(part, field.name))
    elif isinstance(part, tuple):
        for child in part:
            yield from walk(child)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_specs_of_the_language_parse_and_every_span_lies_in_its_parent(path):
    text = path.read_text()
    for item in read(text):
        for node in walk(item):
            assert item.span.start <= node.span.start < node.span.end <= item.span.end
            if isinstance(node, n.Name):
                assert text[node.span.start : node.span.end] == node.text


def test_there_are_fourteen_specs():
    assert len(SPECS) == 14


def test_item_by_item_is_the_whole_file():
    whole = Grammar(start="start")
    for path in SPECS:
        text = path.read_text()
        assert [grammar().tree(text[s.start : s.end]) for s in cut(text)[1]] == whole.tree(text).children


def test_an_empty_file_is_an_empty_file():
    assert read("") == read("# nothing\n\n") == ()


def test_declarations():
    version, mesh, dim, derived, tensor, partial = read(
        "chunk 1\nmesh node[2] over rdma, gpu[8]\ndim M = 1..64 step 8\ndim N = cdiv(M, 2) * 3 - 1 mod 4\n"
        "tensor x : bf16[N / 128 @ cyclic(gpu, 128), M @ (node, gpu), 4]\ntensor p : f32[] sum (node, gpu)\n"
    )
    assert version.number == 1
    assert [(a.name.text, a.size, a.link and a.link.text) for a in mesh.axes] == [("node", 2, "rdma"), ("gpu", 8, None)]
    assert (dim.value.low, dim.value.high, dim.value.step) == (1, 64, 8)
    assert (derived.value.op, derived.value.left.op, derived.value.right.op) == ("-", "*", "mod")
    assert derived.value.left.left.function.text == "cdiv"
    layout, axes, nothing = (d.place for d in tensor.type.dims)
    assert (layout.kind.text, layout.axes.names[0].text, layout.argument) == ("cyclic", "gpu", 128)
    assert [a.text for a in axes.names] == ["node", "gpu"] and nothing is None
    assert partial.type.dims == () and [a.text for a in partial.type.partial.names] == ["node", "gpu"]


def test_policy_values():
    (policy,) = read(
        "policy p { a = auto, b = own_sms(16), c = hierarchical(ring, direct), d = 0.5 MiB, e = 128 x 256x64, f = 3,\n"
        '  g = 1e-5, h = "s", i = 512 along M, j = 8 per shard, chunk = 4MiB, }'
    )
    a, b, c, d, e, f, g, h, i, j, k = (p.value for p in policy.pairs)
    assert (a.name, a.args, b.args, c.args) == ("auto", (), (16,), ("ring", "direct"))
    assert (d.count, e.dims, f.value, g.value, h.value) == (2**19, (128, 256, 64), 3, 1e-5, "s")
    assert (i.count, i.dim.text, j.count, j.unit.text, k.count) == (512, "M", 8, "shard", 4 * 2**20)
    assert policy.pairs[-1].key.text == "chunk"


def test_statements_and_expressions():
    (op,) = read(
        "op f(x, res inout) -> y, z {\n"
        '  y = -(all_gather(x, over = (a, b), eps = 1.5, out = "f32") with p { k = 1 }) @ w[2].T + b\n'
        "  y, z = all_to_all(y, M -> K) with { chunk = 1 B }\n}"
    )
    assert [(p.name.text, p.inout) for p in op.params] == [("x", False), ("res", True)]
    assert [r.text for r in op.results] == ["y", "z"]
    first, second = op.body
    assert (first.value.op, first.value.left.op, first.policy) == ("+", "@", None)
    group = first.value.left.left.operand
    assert (group.policy.base.text, group.policy.pairs[0].value.value) == ("p", 1)
    over, eps, out = group.inner.args[1:]
    assert [over.name.text, [a.text for a in over.value.names]] == ["over", ["a", "b"]]
    assert (eps.value.value, out.value.value) == (1.5, "f32")
    weight = first.value.left.right
    assert (weight.name.text, weight.base.index, weight.base.base.name) == ("T", 2, "w")
    assert [t.text for t in second.targets] == ["y", "z"]
    assert (second.value.args[1].source.text, second.value.args[1].target.text) == ("M", "K")
    assert (second.policy.base, second.policy.pairs[0].value.count) == (None, 1)


def test_plans():
    (plan,) = read(
        "plan r(t) : all_gather over (a, b) {\n  lane 0 { for i in range(1, n) { let s = (rank - i) mod n\n"
        "    if s != 0 { send t[s, 1] part 0 of 2 to (n, i) into t[0] adding with { via = tma } }\n"
        "    else { fetch t[0] from i } } }\n  for i in range(4) { }\n}"
    )
    assert [a.text for a in plan.axes.names] == ["a", "b"]
    lane, short = plan.body
    assert len(short.bounds) == 1 and short.body == ()
    let, branch = lane.body[0].body
    assert let.value.op == "mod" and branch.condition.op == "!="
    (send,), (fetch,) = branch.then, branch.otherwise
    assert (send.action, len(send.region.index), send.region.part[1].value, len(send.peer)) == ("send", 2, 2, 2)
    assert (send.into.index[0].value, send.adding, send.policy.pairs[0].key.text) == (0, True, "via")
    assert (fetch.action, fetch.into, fetch.adding, fetch.policy, fetch.region.part) == (
        "fetch",
        None,
        False,
        None,
        None,
    )


def test_kernels_imports_gradients():
    kernel, use, gradient = read(
        'kernel g(A, B) -> C = "k/m.py" : mm {\n  A = a_ptr : [m, k]\n  C = c_ptr : bf16[m, n] sum k\n'
        '  arg M = m * 2\n  arg s = A.stride(1)\n  arg e = 1e-5\n  arg o = -1\n  arg f = true\n  arg t = "ab"\n'
        '  grid = cdiv(m, BM), 2\n  const BM = 128, W = -2, E = 0.5, F = false, N = "x"\n}\n'
        'use plan "ring.json" as r : all_gather over tp\ngradient g -> dx, dw as f32 saves x with p'
    )
    a, c, size, method, small, minus, flag, text, grid, const = kernel.bindings
    assert (kernel.path.value, kernel.function.text) == ("k/m.py", "mm")
    assert (a.pointer.text, a.dtype, a.partial) == ("a_ptr", None, None)
    assert (c.dtype.text, len(c.dims), c.partial.names[0].text) == ("bf16", 2, "k")
    assert (size.value.op, method.value, method.attribute) == ("*", None, ("A", "stride", 1))
    assert (small.value.value, minus.value.value, flag.value.value, text.value.value) == (1e-5, -1, True, "ab")
    assert len(grid.sizes) == 2
    assert [(k.text, v) for k, v in const.values] == [("BM", 128), ("W", -2), ("E", 0.5), ("F", False), ("N", "x")]
    assert (use.path.value, use.name.text, use.contract.text) == ("ring.json", "r", "all_gather")
    assert [d and d.text for d in gradient.dtypes] == [None, "f32"]
    assert ([x.text for x in gradient.saves], gradient.policy.base.text) == (["x"], "p")


def test_spans_count_from_the_start_of_the_file():
    text = "dim M = 4\n\n# c\ndim N = (1 + 2) * M # d\n"
    size = read(text)[1].value
    assert text[size.span.start : size.span.end] == "(1 + 2) * M"


def test_crlf_and_tabs_are_blanks():
    assert len(read("dim M = 4\r\nop f(x) -> y {\r\n\ty = x\r\n}\r\n")) == 2


def test_mistakes_in_five_items_are_all_found_and_the_rest_survives():
    found, file = codes(
        "mesh tp[8] ovr nvlink\ndim M = 4\ndim step = 3\ntensor x = bf16[M]\n"
        "op f(x) -> y {\n    y = relu(x) ) )\n    z = = 1\n}\ndim N = 5\npolicy p { chunk = 4 MB, route : ring }\n"
    )
    assert found == ["CD109", "CD108", "CD107", "CD106", "CD112", "CD107"]
    assert [i.name.text for i in file.items] == ["M", "N"]


def test_an_unindented_body_is_one_finding_and_the_op_survives():
    found, file = codes("op f(x) -> y {\ny = relu(x)\nz = y\n}\ndim M = 4\n")
    assert found == ["CD104"]
    assert [type(i) for i in file.items] == [n.Op, n.Dim] and len(file.items[0].body) == 2


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "x" + ")" * 5000, "x" + ".T" * 5000, "-" * 5000 + "x", "x + " * 5000 + "x"]
)
def test_deep_nesting_is_refused(text):
    assert codes(f"op f(x) -> y {{ y = {text} }}\ndim M = 4\n")[0] == ["CD123"]


def test_deep_nesting_that_does_not_end_is_refused():
    assert codes("op f(x) -> y { y = " + "(" * 5000)[0] == ["CD105"]
    assert codes("plan r(t) : a over b { " + "lane 0 { " * 5000)[0] == ["CD105"]


def test_a_hundred_levels_are_allowed():
    assert codes("op f(x) -> y { y = " + "(" * 97 + "x" + ")" * 97 + " }")[0] == []
    assert codes("op f(x) -> y { y = " + "(" * 98 + "x" + ")" * 98 + " }")[0] == ["CD123"]


@pytest.mark.parametrize(
    "text, wanted",
    [("chunk 1\ndim M = 4", []), ("chunk 2\ndim M = 4", ["CD005"]), ("chunk 0", ["CD005"]),
     ("dim M = 4\nchunk 1", ["CD124"]), ("chunk 1\nchunk 1", ["CD124"])],
)  # fmt: skip
def test_the_version_comes_first_and_is_one_that_we_read(text, wanted):
    assert codes(text)[0] == wanted


@pytest.mark.parametrize("text", ["9223372036854775808", "9" * 5000])
def test_integers_beyond_64_bits_are_refused(text):
    assert codes(f"dim M = {text}")[0] == ["CD121"]
    assert codes(f"policy p {{ a = {text} GiB }}")[0] == ["CD121"]
    assert read("dim M = 9223372036854775807")[0].value.value == 2**63 - 1
