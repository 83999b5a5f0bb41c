"""CD3 and CD4: what the proof finds in a plan. The rules and the way from a refutation to a diagnostic.

The examples of these rules are sketches of plans, one task a line, since most of them cannot be written as a spec
(the compiler does not make such plans); tests/check/prove/example_plans.py builds each of them as a plan.
The proof itself is in check/prove, which imports this module and is imported only to prove.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Diagnostic, Label
from chunkdsl.source import Source, Span

if TYPE_CHECKING:
    from chunkdsl.check.prove.refutation import Refutation

FAMILIES = ("CD3", "CD4")  # rules whose examples are sketches of plans, not specs


def to_diagnostic(refutation: Refutation, source: Source) -> Diagnostic:
    """The finding on its spec line; the counterexample is in `help`. A line that the source lacks gives no span."""
    return _BY_CODE[refutation.code](refutation, source)


def _finding(refutation: Refutation, source: Source, mend: str) -> Finding:
    span, labels = line_span(source, refutation.line), ()
    if refutation.other_line != refutation.line:
        other = line_span(source, refutation.other_line)
        labels = (Label(other, refutation.other_label),) if other else ()
    return Finding(
        refutation.message, span, refutation.label, labels, help=f"{refutation.counterexample}\n{mend}".strip()
    )


def line_span(source: Source, line: int) -> Span | None:
    return source.line_span(line)


@rule("CD301", "malformed-plan")
def malformed_plan(refutation: Refutation, source: Source) -> Finding:
    """Every index of a plan is in range, every region lies inside its buffer, both ends of a copy have one shape.

    Built-in schedules keep this by construction; a plan made elsewhere may not.

    Fails:
        buffer stage: 8 rows x 4 columns
        rank 0  tile    puts stage rows 4..12

    Mended:
        buffer stage: 8 rows x 4 columns
        rank 0  tile    puts stage rows 4..8
    """
    return _finding(refutation, source, "mend the program that made the plan")


@rule("CD302", "unordered-accesses")
def unordered_accesses(refutation: Refutation, source: Source) -> Finding:
    """Two accesses to the same place, one of them a write, must be ordered: by a serial lane, a signal or stream order.

    Tasks of a launch only start in order, they finish in any. So a chunk that is signalled by its last tile alone is
    a race with its other tiles.

    Fails:
        rank 0  tile 0  puts part rows 0..4 of rank 1
        rank 0  tile 1  puts part rows 4..8 of rank 1, gives chunk
        rank 1  reduce  waits for chunk, reads part rows 0..8

    Mended:
        rank 0  tile 0  puts part rows 0..4 of rank 1, gives chunk
        rank 0  tile 1  puts part rows 4..8 of rank 1, gives chunk
        rank 1  reduce  waits for chunk, reads part rows 0..8
    """
    return _finding(refutation, source, "the later task must wait for a signal that the earlier one gives")


@rule("CD303", "cyclic-wait")
def cyclic_wait(refutation: Refutation, source: Source) -> Finding:
    """No task may wait, through whatever other tasks, for itself: the ranks would wait for ever.

    Fails:
        rank 0  a  waits for q, gives p
        rank 1  b  waits for p, gives q

    Mended:
        rank 0  a  gives p
        rank 1  b  waits for p, gives q
    """
    return _finding(refutation, source, "give one of these signals earlier, or wait for it later")


@rule("CD304", "programs-wait-for-later-programs")
def programs_wait(refutation: Refutation, source: Source) -> Finding:
    """With only so many programs resident, no program may wait for one that cannot start before it ends.

    Programs of a launch start in order and stay until they finish. Other work may hold the remaining multiprocessors
    of one rank, so that progress is judged with the communication programs and one more.

    Fails:
        1 resident program
        rank 0  reduce  waits for part
        rank 0  tile    gives part

    Mended:
        1 resident program
        rank 0  tile    gives part
        rank 0  reduce  waits for part
    """
    return _finding(refutation, source, "order the tasks so that what is waited for starts first")


@rule("CD305", "read-of-unwritten-memory")
def unwritten(refutation: Refutation, source: Source) -> Finding:
    """Whatever a task reads was written before, on every path.

    Fails:
        rank 0  tile    puts part rows 0..4
        rank 0  end     needs part rows 0..8

    Mended:
        rank 0  tile    puts part rows 0..8
        rank 0  end     needs part rows 0..8
    """
    return _finding(refutation, source, "some task must write these rows and columns first")


@rule("CD306", "addend-counted-twice")
def counted_twice(refutation: Refutation, source: Source) -> Finding:
    """A rank's addend goes into a sum once.

    Fails:
        rank 0  reduce  adds part of rank 0, part of rank 1, part of rank 1

    Mended:
        rank 0  reduce  adds part of rank 0, part of rank 1
    """
    return _finding(refutation, source, "add each rank's part once")


@rule("CD307", "addend-missing")
def addend_missing(refutation: Refutation, source: Source) -> Finding:
    """A finished sum holds the addends of exactly the ranks that it should.

    Fails:
        rank 0  reduce  adds part of rank 0
        rank 0  end     needs the sum of ranks 0 and 1

    Mended:
        rank 0  reduce  adds part of rank 0, part of rank 1
        rank 0  end     needs the sum of ranks 0 and 1
    """
    return _finding(refutation, source, "add each rank's part once")


@rule("CD308", "content-in-the-wrong-place")
def wrong_place(refutation: Refutation, source: Source) -> Finding:
    """An element of a tensor arrives at the place of that element, not a row off and not in another shard's place.

    Fails:
        rank 0  copy    x rows 0..4 to stage rows 1..5 of rank 1
        rank 1  tile    needs x rows 1..5 in stage rows 1..5

    Mended:
        rank 0  copy    x rows 1..5 to stage rows 1..5 of rank 1
        rank 1  tile    needs x rows 1..5 in stage rows 1..5
    """
    return _finding(refutation, source, "source and destination of the copy must be the same rows of the tensor")


@rule("CD309", "wrong-content")
def wrong_content(refutation: Refutation, source: Source) -> Finding:
    """A task finds the tensor that it needs, and a sum adds parts of one tensor.

    Fails:
        rank 0  copy    y to stage of rank 1
        rank 1  tile    needs x in stage

    Mended:
        rank 0  copy    x to stage of rank 1
        rank 1  tile    needs x in stage
    """
    return _finding(refutation, source, "copy what the reader needs")


@rule("CD310", "output-written-twice")
def written_twice(refutation: Refutation, source: Source) -> Finding:
    """Each element of an output is written by one task in a call (which others may add to).

    Fails:
        rank 0  tile 0  puts y rows 0..5
        rank 0  tile 1  puts y rows 4..8

    Mended:
        rank 0  tile 0  puts y rows 0..4
        rank 0  tile 1  puts y rows 4..8
    """
    return _finding(refutation, source, "cut the output so that no two tasks write the same rows and columns")


@rule("CD401", "buffer-reused-too-early")
def reused_early(refutation: Refutation, source: Source) -> Finding:
    """A call may write a buffer only after every rank has finished what earlier calls do there.

    With one copy of a buffer a call has to end with a barrier. With two, call e writes the copy of call e - 2, which is
    over if every pair of ranks exchanged a signal in call e - 1: a call without rows too.

    Fails:
        1 slot
        call 0  rank 1  reads stage of rank 0
        call 1  rank 0  puts stage of rank 0

    Mended:
        1 slot
        call 0  rank 1  reads stage of rank 0, gives over
        call 1  rank 0  waits for over, puts stage of rank 0
    """
    return _finding(refutation, source, "end the call with a barrier, or use one more buffer and signal in every call")


@rule("CD402", "stale-content")
def stale(refutation: Refutation, source: Source) -> Finding:
    """What a task reads was written in its own call, not left over from an earlier one.

    Fails:
        call 0  rank 0  puts x in stage
        call 1  rank 0  needs x of call 1 in stage

    Mended:
        call 0  rank 0  puts x in stage
        call 1  rank 0  puts x in stage
        call 1  rank 0  needs x of call 1 in stage
    """
    return _finding(refutation, source, "every call must write what it reads")


@rule("CD403", "signal-overtaken")
def overtaken(refutation: Refutation, source: Source) -> Finding:
    """A signal word only grows: its signal of one call is given before its signal of the next, and once in a call.

    Waits compare with `>=`. A word that falls back to an earlier call's epoch leaves a waiter for ever, and one that is
    set twice in a call lets its waiter start after the first time.

    Fails:
        call 0  rank 0  tile 0  gives word 0
        call 0  rank 0  tile 1  gives word 0, as another signal

    Mended:
        call 0  rank 0  tile 0  gives word 0
        call 0  rank 0  tile 1  gives word 1
    """
    return _finding(refutation, source, "use a word of its own for each signal of a call, and order the calls")


@rule("CD404", "wait-without-signal")
def unsignalled(refutation: Refutation, source: Source) -> Finding:
    """Every signal that a task waits for is given by some task of the plan.

    Fails:
        rank 1  tile    waits for arrived

    Mended:
        rank 0  copy    gives arrived
        rank 1  tile    waits for arrived
    """
    return _finding(refutation, source, "let the task that produces the data give the signal, or drop the wait")


@rule("CD405", "signal-of-two-ranks")
def two_signallers(refutation: Refutation, source: Source) -> Finding:
    """One rank gives a signal: the programs of a rank count themselves, those of two ranks cannot.

    Fails:
        rank 0  tile    gives arrived
        rank 1  tile    gives arrived

    Mended:
        rank 0  tile    gives arrived
        rank 1  tile    gives arrived, another word
    """
    return _finding(refutation, source, "use one word for each signalling rank")


_BY_CODE: dict[str, Callable[[Refutation, Source], Diagnostic]] = {
    f.code: f
    for f in (
        malformed_plan,
        unordered_accesses,
        cyclic_wait,
        programs_wait,
        unwritten,
        counted_twice,
        addend_missing,
        wrong_place,
        wrong_content,
        written_twice,
        reused_early,
        stale,
        overtaken,
        unsignalled,
        two_signallers,
    )
}
