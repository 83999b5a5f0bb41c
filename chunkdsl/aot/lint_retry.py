"""A lint over the loops of PTX that read one place again and again until it holds what is waited for. It follows
registers and what goes through shared memory, by which a scalar that one thread has read reaches the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.ptx import Instruction, read_ptx

STRONG = {"relaxed", "acquire", "volatile", "mmio"}
ELSEWHERE = ("param", "shared", "local", "const")
REGISTER = re.compile(r"%?[A-Za-z_$][\w$]*")
SHARED = "shared memory"  # as a whole, as if it were a register
WITHOUT_RESULT = ("st", "red", "bra", "brx", "bar", "barrier", "fence", "membar", "ret", "exit", "nanosleep")


@lint_rule("stale-retry", "ptx", nvidia_only=True)
def stale_retries(text: str) -> Iterator[tuple[int, str, str]]:
    """A load that is retried until its value changes is strong, and at system scope.

    A weak load, or one that may be served by L1 (`.ca`, `.nc`), can find the same stale line for ever; one of a
    narrower scope need not see what another GPU writes. Use `ld.relaxed.sys`, `ld.acquire.sys` or `ld.volatile`.
    """
    for body in read_ptx(text):
        names = {_split(op)[0].strip(): _split(op)[1].strip(" ,") for op in body if op.parts[0] == "mov"}
        for loop in _loops(body):
            if any(op.parts[0] == "setmaxnreg" for op in loop):
                continue  # where warps get their next partition: its own retries are loops inside
            made = [(op, _results(op)) for op in loop]
            changed = set().union(*(results for _, results in made))
            for op in loop:
                if _is_data_load(op) and not _address(op) & changed and _decides(op, loop, names):
                    yield op.line, op.text, "retried until it changes, but weak, cached or of a narrow scope"


def _is_data_load(op: Instruction) -> bool:
    """A load of global memory that is not as a retry must be."""
    parts = set(op.parts)
    if op.parts[0] not in ("ld", "ldu") or any(p.startswith(ELSEWHERE) for p in op.parts[1:]):
        return False
    strong = bool(parts & STRONG) and ("sys" in parts or "volatile" in parts)
    return op.parts[0] == "ldu" or not strong or bool(parts & {"nc", "ca"})


def _decides(load: Instruction, loop: list[Instruction], names: dict[str, str]) -> bool:
    """Does what `load` reads reach a branch that may leave the loop? `names`: what registers are other names of."""
    known, tainted, put = set(loop), set(_results(load)), _put(loop, names)
    grown = True
    while grown:
        grown = False
        for op in loop:
            results = _results(op)
            if not results <= tainted and (put[op] if op in put else _sources(op)) & tainted:
                tainted |= results
                grown = True
    leaves = (op for op in loop if op.parts[0] == "bra" and op.predicate and set(op.successors) - known)
    return any(_name(op, op.predicate.lstrip("!")) in tainted for op in leaves)


def _put(loop: list[Instruction], names: dict[str, str]) -> dict[Instruction, set]:
    """For each load from shared memory what the store before it in a straight line put into the same place."""
    entered = [nxt for op in loop for nxt in op.successors]
    found, last, before = {}, None, None
    for op in loop:
        if before is None or before.successors != [op] or entered.count(op) != 1:
            last = None
        if op.parts[0] == "st" and _is_shared(op):
            last = op
        elif last and op.parts[0] == "ld" and _is_shared(op) and _place(last, names) == _place(op, names):
            found[op] = _sources(last)
        before = op
    return found


def _place(op: Instruction, names: dict[str, str]) -> str:
    inside = re.search(r"\[([^\]]*)\]", op.operands)[1].replace(" ", "").removesuffix("+0")
    return names.get(inside, inside)


def _name(op: Instruction, register: str):
    """Registers of inline assembly are its own: two pieces may have a `p` each."""
    return register if register.startswith("%") else (op.scope, register)


def _split(op: Instruction) -> tuple[str, str]:
    """Operands that are written, and those that are read."""
    at = op.operands.lstrip().startswith("[")  # where a copy goes to: no register of it changes
    if at or op.parts[0] in WITHOUT_RESULT or (op.parts[0] == "multimem" and "st" in op.parts):
        return "", op.operands
    vector = re.match(r"\s*\{[^}]*\}", op.operands)
    first = vector[0] if vector else op.operands.split(",")[0]
    return first, op.operands[len(first) :]


def _results(op: Instruction) -> set:
    if op.parts[0] == "st" and _is_shared(op):
        return {SHARED}
    return {_name(op, r) for r in REGISTER.findall(_split(op)[0])}


def _sources(op: Instruction) -> set:
    guard = {_name(op, op.predicate.lstrip("!"))} if op.predicate else set()
    guard |= {SHARED} if op.parts[0] == "ld" and _is_shared(op) else set()
    return guard | {_name(op, r) for r in REGISTER.findall(_split(op)[1])}


def _is_shared(op: Instruction) -> bool:
    return any(p.startswith("shared") for p in op.parts)


def _address(op: Instruction) -> set:
    return {_name(op, r) for r in REGISTER.findall("".join(re.findall(r"\[([^\]]*)\]", op.operands)))}


def _loops(body: tuple[Instruction, ...]) -> Iterator[list[Instruction]]:
    """Natural loops, one for each edge that leads back to where a walk from the start is coming from."""
    before: dict[Instruction, list[Instruction]] = {op: [] for op in body}
    for op in body:
        for nxt in op.successors:
            before[nxt].append(op)
    for tail, head in _edges_back(body):
        inside, work = {head, tail}, [tail] if tail is not head else []
        while work:
            for op in before[work.pop()]:
                if op not in inside:
                    inside.add(op)
                    work.append(op)
        yield [op for op in body if op in inside]


def _edges_back(body: tuple[Instruction, ...]) -> Iterator[tuple[Instruction, Instruction]]:
    seen, open_ = set(), set()
    if not body:
        return
    stack = [(body[0], iter(body[0].successors))]
    seen.add(body[0])
    open_.add(body[0])
    while stack:
        op, rest = stack[-1]
        for nxt in rest:
            if nxt in open_:
                yield op, nxt
            elif nxt not in seen:
                seen.add(nxt)
                open_.add(nxt)
                stack.append((nxt, iter(nxt.successors)))
                break
        else:
            stack.pop()
            open_.discard(op)
