"""Strategies for sizes, expressions and policies as plain trees, and their text in any layout."""

from dataclasses import fields

from hypothesis import strategies as st

from chunkdsl.syntax import nodes as n
from chunkdsl.syntax.parse import grammar

# A tree is (kind, *parts); `plain` makes the same of a node.
names = st.from_regex(r"[abxyTM_][abxyTM_05]{0,3}", fullmatch=True).filter(lambda w: w not in grammar().keywords)
ints = st.integers(0, 2**63 - 1)
floats = st.floats(0, allow_nan=False, allow_infinity=False)
LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2, "mod": 2}
SPACES = st.sampled_from([" ", "  ", "\n    ", ' # c + ( "\n  ', "\t", "\r\n "])


def plain(part):
    if isinstance(part, n.Name):
        return part.text
    if isinstance(part, n.Node):
        values = [plain(getattr(part, f.name)) for f in fields(part) if f.name != "span"]
        return (type(part).__name__, *values)
    return tuple(plain(p) for p in part) if isinstance(part, tuple) else part


sizes = st.recursive(
    ints.map(lambda i: ("SizeInt", i)) | names.map(lambda x: ("SizeName", x)),
    lambda inner: (
        st.tuples(st.just("SizeBinary"), st.sampled_from(["+", "-", "*", "/", "mod"]), inner, inner)
        | st.tuples(st.just("SizeCall"), names, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=12,
)


def write_size(tree, gap, level=1):
    kind, *parts = tree
    if kind == "SizeBinary":
        op, left, right = parts
        own = LEVEL[op]
        text = f"{write_size(left, gap, own)}{gap}{op}{gap}{write_size(right, gap, own + 1)}"
        return f"({gap}{text})" if own < level else text
    if kind == "SizeCall":
        return f"{parts[0]}({f',{gap}'.join(write_size(a, gap) for a in parts[1])})"
    return str(parts[0])


def above(tree, level):
    """The tree if it binds at least as tightly as `level`, else a group of it."""
    own = LEVEL[tree[1]] if tree[0] == "Binary" else 3 if tree[0] == "Negate" else 4
    return tree if own >= level else ("Group", tree, None)


def binary(op, left, right):
    return ("Binary", op, above(left, LEVEL[op]), above(right, LEVEL[op] + 1))


pairs = st.lists(st.tuples(st.just("Pair"), names, st.tuples(st.just("Number"), ints)), max_size=2).map(tuple)
uses = st.tuples(st.just("PolicyUse"), names, pairs) | st.tuples(st.just("PolicyUse"), st.none(), pairs)


def calls(inner):
    keyword = inner | st.lists(names, min_size=2, max_size=3).map(lambda a: ("Axes", tuple(a)))
    argument = inner | st.tuples(st.just("MoveArg"), names, names)
    argument |= st.tuples(st.just("KeywordArg"), names | st.just("over"), keyword)
    return st.tuples(st.just("Call"), names, st.lists(argument, max_size=3).map(tuple))


exprs = st.recursive(
    names.map(lambda x: ("Ref", x)) | (ints | floats).map(lambda v: ("Literal", v)),
    lambda inner: (
        st.builds(binary, st.sampled_from("+-*/@"), inner, inner)
        | inner.map(lambda e: ("Negate", above(e, 3)))
        | st.builds(lambda e, a: ("Attr", above(e, 4), a), inner, names)
        | st.builds(lambda e, i: ("Pick", above(e, 4), i), inner, ints)
        | st.tuples(st.just("Group"), inner, st.none() | uses)
        | calls(inner)
    ),
    max_leaves=10,
)


def write(tree, gap):
    kind, *parts = tree
    match kind:
        case "Binary":
            return f"{write(parts[1], gap)}{gap}{parts[0]}{gap}{write(parts[2], gap)}"
        case "Negate":
            return f"-{gap}{write(parts[0], gap)}"
        case "Attr":
            return f"{write(parts[0], gap)}.{parts[1]}"
        case "Pick":
            return f"{write(parts[0], gap)}[{parts[1]}]"
        case "Group":
            return f"({write(parts[0], gap)}{gap}{write(parts[1], gap) if parts[1] else ''})"
        case "PolicyUse":
            written = f",{gap}".join(f"{key} = {value[1]}" for _, key, value in parts[1])
            body = f"{{{gap}{written}}}" if parts[1] or not parts[0] else ""
            return f"with {parts[0] or ''}{gap}{body}"
        case "Call":
            return f"{parts[0]}({f',{gap}'.join(write(a, gap) for a in parts[1])})"
        case "MoveArg":
            return f"{parts[0]} -> {parts[1]}"
        case "KeywordArg":
            return f"{parts[0]}{gap}= {write(parts[1], gap)}"
        case "Axes":
            return f"({', '.join(parts[0])})"
    return repr(parts[0]) if kind == "Literal" else parts[0]
