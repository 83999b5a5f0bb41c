"""The kernel as a function of its program ids: splices at places of the syntax tree, so comments and layout survive.

`tl.program_id` and `tl.num_programs` become parameters, because the caller hands out program ids by ticket; helpers
that ask for them get the same parameters. Every changed line is marked, and nothing else of the text changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.returns import alias_edits, aliases, depth, early_returns, pass_edits, rest_edits
from chunkdsl.kernels.source import KernelSource, choosers, own_decorators
from chunkdsl.kernels.turn_splices import TURN_MARK, TURN_NAMES, loop_at, turn_edits
from chunkdsl.kernels.turns import Turns
from chunkdsl.parsing import parse_python

MARK = "  # chunk: by ticket"
ASKS = {"program_id": "program_{}", "num_programs": "programs_{}"}
PARAMETERS = tuple(text.format(axis) for text in ASKS.values() for axis in range(3))
SUFFIX = "_by_ticket"

Edit = tuple[int, int, str]  # offsets into the text, replacement


def definitions(source: KernelSource) -> tuple[tuple[str, str], ...]:
    """(name, text) of what the kernel needs, as it stands in the file, without decorators that choose a
    configuration. An assignment to several names has them all, separated by commas."""
    return tuple((names_of(node), definition_text(source, node)) for node in source.needed)


def by_ticket(source: KernelSource, turns: tuple[Turns, ...] = ()) -> tuple[tuple[str, str], ...]:
    """(name, text) of the kernel, and of helpers that ask for program ids, as functions of PARAMETERS, which come
    first. Their names end with SUFFIX. With `turns`, `arrivals` comes behind these, and loops wait for their rows.
    KernelFault for a kernel that returns where no splice can say it otherwise (`returns`)."""
    check_asked(source)
    guards = early_returns(source.kernel)
    if turns and any(named for _, named in aliases(source.kernel, guards)):
        raise KernelFault("returns early, and gives names other values behind that", guards[0].lineno,
                          "put the rest under `if`")  # fmt: skip
    taken = {n.id for node in source.needed for n in ast.walk(node) if isinstance(n, ast.Name)}
    taken |= {n.arg for node in source.needed for n in ast.walk(node) if isinstance(n, ast.arg)}
    clash = next((p for p in (*PARAMETERS, *(TURN_NAMES if turns else ())) if p in taken), None)
    if clash:
        raise KernelFault(f"uses the name `{clash}`, which the rewritten kernel takes", source.kernel.lineno, "rename")
    asking = asking_functions(source, turns)
    return tuple(
        (node.name + suffix(turns), spliced(source, node, asking, turns, guards if node is source.kernel else ()))
        for node in source.needed
        if isinstance(node, ast.FunctionDef) and node.name in asking
    )


def suffix(turns: tuple[Turns, ...]) -> str:
    """Of a rewritten function: another one for other loops that are cut, since a module may hold several."""
    lines = "".join(f"_{t.line}" for t in turns)
    return f"_waits{lines}{SUFFIX}" if turns else SUFFIX


def original(name: str) -> str:
    """The name of the function that a rewritten one was made of."""
    return re.sub(rf"(_waits(_\d+)+)?{SUFFIX}$", "", name)


def names_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return ", ".join(ast.unparse(t) for t in targets)


def first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in own_decorators(node))])


def chooser_lines(node: ast.stmt) -> set[int]:
    return {line for d in choosers(node) for line in range(d.lineno, d.end_lineno + 1)}


def definition_text(source: KernelSource, node: ast.stmt) -> str:
    lines, dropped = source.text.splitlines(), chooser_lines(node)
    return "\n".join(lines[i - 1] for i in range(first_line(node), node.end_lineno + 1) if i not in dropped)


# ---- program ids


def asked(node: ast.AST) -> str | None:
    """program_id or num_programs, if this is a call of one."""
    if not isinstance(node, ast.Call):
        return None
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name if name in ASKS else None


def check_asked(source: KernelSource) -> None:
    """KernelFault where program ids are asked for by another name, which no splice would find."""
    for top in source.needed:
        called = {id(n.func) for n in ast.walk(top) if isinstance(n, ast.Call)}
        for n in ast.walk(top):
            name = getattr(n, "attr", getattr(n, "id", ""))
            imported = source.imports.get(name, (None, ""))[1] if isinstance(n, ast.Name) else ""
            meant = imported.split("  #")[0].split(" as ")[0].split()[-1:] if "triton" in imported else []
            if (name in ASKS and id(n) not in called) or (name not in ASKS and set(meant) & ASKS.keys()):
                raise KernelFault("asks for program ids by another name", n.lineno, "write `tl.program_id(0)`")


def asking_functions(source: KernelSource, turns: tuple[Turns, ...] = ()) -> frozenset[str]:
    """The kernel, and all functions that ask for program ids, or have such a loop, themselves or by a call."""
    functions = {n.name: n for n in source.needed if isinstance(n, ast.FunctionDef)}
    found = {name for name, node in functions.items() if any(asked(n) for n in ast.walk(node))} | {source.function}
    found |= {t.function for t in turns}
    while True:
        more = {name for name, node in functions.items() if any(called(n) in found for n in ast.walk(node))}
        if more <= found:
            return frozenset(found)
        found |= more


def called(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def axis_of(call: ast.Call) -> int:
    values = [*call.args, *(k.value for k in call.keywords if k.arg == "axis")]
    value = values[0] if values else None
    if not (isinstance(value, ast.Constant) and value.value in (0, 1, 2)):
        raise KernelFault("asks for a program id along an axis that is not 0, 1 or 2", call.lineno)
    return value.value


# ---- splices


def spliced(
    source: KernelSource, node: ast.FunctionDef, asking: frozenset[str], turns: tuple[Turns, ...],
    guards: tuple[ast.stmt, ...] = (),
) -> str:  # fmt: skip
    at = partial(offset, source)
    text = source.text
    edits = [*changes(source, node, asking, turns), *pass_edits(guards, at), *alias_edits(node, guards, at)]
    start, end = at(first_line(node), 0), at(node.end_lineno + 1, 0)
    for begin, _, _ in tuple(edits):
        stop = text.find("\n", begin)
        stop = end if stop < 0 or stop > end else stop
        if not text[begin:stop].rstrip().endswith("\\"):
            edits.append((stop, stop, MARK))
    for i, turn in enumerate(turns):
        if node.name == turn.function:
            loop = loop_at(node, turn.line)
            stop = text.index("\n", at(loop.iter.end_lineno, loop.iter.end_col_offset))
            arrivals = "arrivals" if len(turns) == 1 else f"arrivals[{i}]"
            deeper = depth(guards, loop.lineno)
            edits += [*turn_edits(source, loop, at, arrivals, deeper), (stop, stop, TURN_MARK)]
    edits += rest_edits(text, node, guards, at, MARK)
    for line in chooser_lines(node):
        if line >= first_line(node):
            edits.append((at(line, 0), at(line + 1, 0), ""))
    for begin, stop, new in sorted(set(edits), key=lambda e: (e[0], e[1], e[2] in (MARK, TURN_MARK)), reverse=True):
        text = text[:begin] + new + text[stop:]
        end += len(new) - (stop - begin)
    made = text[start:end].rstrip("\n")
    try:
        parse_python(made)
    except SyntaxError as error:
        raise KernelFault(f"cannot be rewritten: {error.msg}", node.lineno, "write it on simpler lines") from None
    return made


def changes(
    source: KernelSource, node: ast.FunctionDef, asking: frozenset[str], turns: tuple[Turns, ...]
) -> Iterator[Edit]:
    at, text = partial(offset, source), source.text
    parameters = ", ".join((*PARAMETERS, "arrivals") if turns else PARAMETERS)
    name = text.index(node.name, at(node.lineno, node.col_offset) + len("def"))
    yield name, name + len(node.name), node.name + suffix(turns)
    opening = text.index("(", name) + 1
    arguments = any(isinstance(n, ast.arg) for n in ast.walk(node.args))
    space = "" if text[opening] == "\n" else " "
    yield opening, opening, parameters + (f",{space}" if arguments else "")
    for n in ast.walk(ast.Module(body=node.body, type_ignores=[])):
        begin = at(n.lineno, n.col_offset) if isinstance(n, ast.Call) else 0
        if ask := asked(n):
            yield begin, at(n.end_lineno, n.end_col_offset), ASKS[ask].format(axis_of(n))
        elif called(n) in asking:
            opening = text.index("(", at(n.func.end_lineno, n.func.end_col_offset)) + 1
            more = ", " if n.args or n.keywords else ""
            yield begin, at(n.func.end_lineno, n.func.end_col_offset), n.func.id + suffix(turns)
            yield opening, opening, parameters + more


def offset(source: KernelSource, line: int, column: int) -> int:
    """Offset into the text of a place of the syntax tree, whose columns count UTF-8 bytes."""
    lines = source.text.splitlines(keepends=True)
    before = sum(len(text) for text in lines[: line - 1])
    return before if line > len(lines) else before + len(lines[line - 1].encode()[:column].decode())
