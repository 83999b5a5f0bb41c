"""CD0: files, the command line and the compiler itself. Their examples are commands, not specs."""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Edit, Fix, Severity
from chunkdsl.source import Span


@rule("CD001", "internal-error")
def internal_error(what: str) -> Finding:
    """chunkdsl failed in a way that no spec should be able to cause: this is a defect of chunkdsl.

    Please report it with the spec and the command. `CHUNKDSL_DEBUG=1` prints the Python traceback to stderr.

    Fails:
        chunkdsl check good.chunk    # by a chunkdsl with a defect

    Mended:
        chunkdsl check good.chunk    # by a chunkdsl without it
    """
    return Finding(
        f"chunkdsl failed: {what}",
        help="this is a defect of chunkdsl, not of your spec: please report it with the spec and the command; "
        "CHUNKDSL_DEBUG=1 prints the traceback",
    )


@rule("CD002", "unreadable-path")
def unreadable_path(why: str) -> Finding:
    """A path given on the command line, or a file below a folder given there, could not be read.

    Pipes and devices are not read, as that could take for ever. Those that a shell has opened are: `/dev/stdin`, and
    what `<(command)` names.

    Fails:
        chunkdsl check missing.chunk

    Mended:
        chunkdsl check good.chunk
    """
    return Finding(f"cannot read this path: {why}")


@rule("CD003", "not-utf-8")
def not_utf_8(byte: int, line: int) -> Finding:
    """Specs are UTF-8 text (a byte order mark is allowed). This file holds bytes that are not.

    Fails:
        chunkdsl check latin1.chunk

    Mended:
        chunkdsl check good.chunk
    """
    return Finding(
        f"not UTF-8 text: the bytes at offset {byte} (line {line}) do not decode",
        help="save the file as UTF-8",
    )


@rule("CD004", "no-specs-in-folder")
def no_specs_in_folder() -> Finding:
    """A folder was given, and neither it nor a folder below it holds a file whose name ends in `.chunk`.

    Fails:
        chunkdsl check empty

    Mended:
        chunkdsl check specs
    """
    return Finding("this folder holds no .chunk file", help="name a file, or a folder that holds some")


@rule("CD005", "unsupported-version")
def unsupported_version(span: Span, found: int, known: int) -> Finding:
    """The first item names a version of the language that this chunkdsl does not read.

    Fails:
        chunkdsl check next.chunk

    Mended:
        chunkdsl check good.chunk
    """
    newer = f"this chunkdsl reads `chunk {known}`"
    return Finding(
        f"version {found} of the language is not supported",
        span,
        newer,
        help="upgrade chunkdsl" if found > known else f"write `chunk {known}`",
    )


@rule("CD020", "unwritable-spec")
def unwritable_spec(why: str) -> Finding:
    """A spec was to be formatted or mended in place and could not be written. It is as it was before.

    Fails:
        chunkdsl fmt locked/untidy.chunk        # the folder cannot be written to

    Mended:
        chunkdsl fmt good.chunk
    """
    return Finding(f"cannot write this file: {why}", help="`--diff` shows what would change and writes nothing")


@rule("CD030", "unused-ignore", Severity.WARNING)
def unused_ignore(span: Span, code: str, removal: Edit) -> Finding:
    """A comment `# chunk: ignore[CD203]` silences findings of its line, or of the next line if it has one to itself.
    This one names a code that was not found there, so it may go: kept, it would hide the next mistake.

    It lists codes or names of rules, parted by commas; there is none for all of them. What concerns the whole file
    (CD0) is not silenced.

    Fails:
        chunkdsl check ignoring.chunk       # dim M = 4     # chunk: ignore[CD203]

    Mended:
        chunkdsl check good.chunk
    """
    message = f"nothing is silenced: no {code} here" if code else "an ignore comment lists codes: ignore[CD203]"
    return Finding(message, span, "of no use", fixes=(Fix("remove it", (removal,), safe=True),))


@rule("CD031", "bad-setting")
def bad_setting(why: str, span: Span | None, near: str = "") -> Finding:
    """`[tool.chunkdsl]` in pyproject.toml has `select` and `ignore`, lists of codes or of their beginnings, and
    `paths`, the specs or folders that `check` and `fmt` take when none is named. Nothing else: an option that is
    misspelt and skipped would look as if it were in force.

    Fails:
        chunkdsl check specs        # select = ["CD2"] is written selct = ["CD2"]

    Mended:
        chunkdsl check specs
    """
    fixes = (Fix(f"write `{near}`", (Edit(span, near),)),) if near and span else ()
    return Finding(why, span, help=f"did you mean `{near}`?" if near else "", fixes=fixes)


@rule("CD032", "no-such-start")
def no_such_start(kind: str, fitting: Sequence[str], known: Sequence[str], near: Sequence[str] = ()) -> Finding:
    """`chunkdsl new` starts a spec from one that is shipped, which is named whole or by a beginning that fits only one.

    Fails:
        chunkdsl new zebra

    Mended:
        chunkdsl new tp_mlp_swiglu
    """
    if fitting:
        return Finding(f"{kind!r} is the beginning of several", help=f"one of {', '.join(fitting)}")
    meant = f"did you mean {' or '.join(near)}? There are" if near else "one of"
    return Finding(f"there is no spec {kind!r} to start from", help=f"{meant} {', '.join(known)}")


@rule("CD033", "unwritable-start")
def unwritable_start(why: str) -> Finding:
    """`chunkdsl new` could not write the spec. It never overwrites a file.

    Fails:
        chunkdsl new gemm_rs good.chunk     # the file is there

    Mended:
        chunkdsl new gemm_rs
    """
    return Finding(f"cannot write this file: {why}", help="name another, as in `chunkdsl new gemm_rs mine.chunk`")
