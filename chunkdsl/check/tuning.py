"""CD0: `chunkdsl tune` and the files that it writes. Their examples are commands, not specs."""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Severity


@rule("CD034", "unreadable-tuned-file")
def unreadable_tuned_file(path: str, why: str) -> Finding:
    """What was measured for SPEC.chunk stands in SPEC.tuned.json beside it, which `tune` writes and `build` reads. A
    file that is broken, or of a version of the format that this chunkdsl does not know, is not passed over: the module
    would be another one than the file is there for.

    Fails:
        chunkdsl build half.chunk         # half.tuned.json ends in the middle

    Mended:
        chunkdsl build mlp.chunk
    """
    return Finding(f"cannot read {path}: {why}", help="remove it, or restore it; then tune again")


@rule("CD035", "stale-tuned-file", Severity.WARNING)
def stale_tuned_file(path: str, why: str, command: str) -> Finding:
    """What was measured for another text of the spec, or with another version of chunkdsl, does not say what is fastest
    now. Such a file is not used: `auto` becomes what the cost model says.

    Fails:
        chunkdsl check changed.chunk --world 2      # changed.tuned.json is of another text

    Mended:
        chunkdsl check mlp.chunk --world 2
    """
    return Finding(f"{path} is not used: {why}", help=f"run `{command}` again, or remove the file")


@rule("CD036", "tuned-elsewhere")
def tuned_elsewhere(path: str, theirs: str, ours: str) -> Finding:
    """One file has the results of one GPU, with one version of torch and Triton, on ranks with a GPU each or not. Times
    of others beside them would compare what cannot be compared.

    Fails:
        chunkdsl tune other.chunk --rehearse        # other.tuned.json has results of a GPU

    Mended:
        chunkdsl tune mlp.chunk --rehearse
    """
    return Finding(
        f"{path} has results of {theirs}; this is {ours}",
        help="`--fresh` starts anew and writes over them; or move the file away",
    )


@rule("CD037", "cannot-tune-here")
def cannot_tune_here(why: str, help: str) -> Finding:
    """Tuning measures, on as many GPUs of one host as the op shall run on. Without GPUs there is nothing to measure:
    `--rehearse` goes through all of it with the cost model's predictions in place of times, and `build` does not take
    what comes out.

    Fails:
        chunkdsl tune built.chunk         # where there is no GPU

    Mended:
        chunkdsl tune built.chunk --rehearse
    """
    return Finding(f"cannot tune here: {why}", help=help)


@rule("CD038", "tuned-in-rehearsal", Severity.WARNING)
def tuned_in_rehearsal(path: str, how: str) -> Finding:
    """A rehearsal shows that tuning works, not what is fast: its times are the cost model's, or of ranks that share a
    GPU and have no link between them. A build does not take its results.

    Fails:
        chunkdsl check rehearsed.chunk --world 2    # rehearsed.tuned.json was written with --rehearse

    Mended:
        chunkdsl check mlp.chunk --world 2
    """
    return Finding(f"{path} is not used: {how}", help="tune on GPUs with `--fresh`, or remove the file")


@rule("CD039", "no-such-op")
def no_such_op(name: str, known: Sequence[str]) -> Finding:
    """`tune --op NAME` tunes some of the ops of a spec.

    Fails:
        chunkdsl tune mlp.chunk --rehearse --op attention

    Mended:
        chunkdsl tune mlp.chunk --rehearse
    """
    return Finding(f"the spec has no op {name}", help=f"its ops: {', '.join(known)}")


@rule("CD040", "unusable-kit")
def unusable_kit(path: str, why: str) -> Finding:
    """`tune SPEC --prepare FOLDER` writes what `tune --measure FOLDER` measures, on a machine with GPUs, and `tune SPEC
    --collect FOLDER` takes the results back. All three belong to one text of the spec and one version of chunkdsl.

    Fails:
        chunkdsl tune mlp.chunk --collect build     # nothing was measured there

    Mended:
        chunkdsl tune mlp.chunk --rehearse
    """
    return Finding(f"cannot use {path}: {why}", help="prepare it again: `chunkdsl tune SPEC --prepare FOLDER`")
