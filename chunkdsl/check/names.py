"""Rules about names: what is declared, once, before its use, and what is called with what. CD240 to CD254.

The functions are given what was found; they decide nothing. `near` is the list of nearest known names, best first:
one name makes a fix, several a hint.
"""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Edit, Fix, Label
from chunkdsl.source import Span


def did_you_mean(near: tuple[str, ...]) -> str:
    return f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""


def replace_by(span: Span, near: tuple[str, ...]) -> tuple[Fix, ...]:
    """The fix that writes the nearest name, if there is exactly one."""
    return (Fix(f"write `{near[0]}`", (Edit(span, near[0]),)),) if len(near) == 1 else ()


@rule("CD240", "unknown-name")
def unknown_name(name: str, span: Span, what: str, near: tuple[str, ...], known: str = "") -> Finding:
    """A name in an op that is neither a parameter nor bound by an earlier statement, or a parameter without a tensor.

    An op sees its parameters and what its own statements bound before; a parameter is a declared tensor of that name.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(z) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"`{name}` is not {what}", span, known or "not known here", (), did_you_mean(near),
                   replace_by(span, near))


@rule("CD241", "unknown-dimension")
def unknown_dimension(name: str, span: Span, near: tuple[str, ...], known: str = "") -> Finding:
    """A size or a dimension argument names something that no `dim` declares.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[N @ tp, 32]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim N = 1..64
        tensor x : bf16[N @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    hint = did_you_mean(near) or f"declare it: `dim {name} = ...`"
    return Finding(f"`{name}` is not a declared dimension", span, known, (), hint, replace_by(span, near))


@rule("CD242", "unknown-axis")
def unknown_axis(name: str, span: Span, near: tuple[str, ...], mesh: Span | None = None) -> Finding:
    """A placement or `over` names something that is not an axis of the mesh.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ sp, 32]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    labels = (Label(mesh, "the mesh"),) if mesh else ()
    return Finding(f"`{name}` is not an axis of the mesh", span, "", labels, did_you_mean(near),
                   replace_by(span, near))


@rule("CD243", "unknown-dtype")
def unknown_dtype(name: str, span: Span, near: tuple[str, ...]) -> Finding:
    """A type starts with, or a `cast` ends with, a word that is not a dtype.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bfloat16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    hint = did_you_mean(near) or "dtypes are bf16 f16 f32 f8e4m3 f8e5m2 i8 i32 i64 bool"
    return Finding(f"`{name}` is not a dtype", span, "", (), hint, replace_by(span, near))


@rule("CD244", "unknown-function")
def unknown_function(name: str, span: Span, near: tuple[str, ...], known: str = "") -> Finding:
    """A call of something that is neither a function of the language nor a declared kernel.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = gather_all(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"`{name}` is not a function", span, known, (), did_you_mean(near), replace_by(span, near))


@rule("CD245", "unknown-attribute")
def unknown_attribute(name: str, span: Span) -> Finding:
    """The only attribute of a tensor is `.T`, the transpose of a matrix.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = x.t }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = x.T }
    """
    fixes = (Fix("write `T`", (Edit(span, "T"),)),) if name in ("t", "mT") else ()
    return Finding(f"a tensor has no attribute `{name}`", span, "the only one is `.T`", (), "", fixes)


@rule("CD246", "duplicate-name")
def duplicate_name(name: str, span: Span, first: Span | None, hint: str = "") -> Finding:
    """A name is declared twice in a file, or bound twice in an op.

    Axes, dims, tensors, ops, kernels and plans share one set of names, policies have their own. Inside an op each name
    is bound once, so that a name means one value wherever it stands. A file has one mesh.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim M = 1..128
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    labels = (Label(first, "the first one"),) if first else ()
    return Finding(f"{name} is there twice", span, "the second one", labels, hint or "give one of them another name")


@rule("CD247", "reserved-name")
def reserved_name(name: str, span: Span, why: str) -> Finding:
    """A name that a generated module cannot use: a Python keyword, or one that the module's own interface has taken.

    Ops become methods beside `check` and `close`; tensors and dims become arguments beside `self` and `out`.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op check(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op check_in(x) -> y { y = all_gather(x) }
    """
    return Finding(f"`{name}` cannot be a name here: {why}", span, "", (), "choose another name")


@rule("CD248", "assignment-to-parameter")
def assignment_to_parameter(name: str, span: Span, parameter: Span) -> Finding:
    """A statement binds the name of a parameter, which is not declared `inout`.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y {
            x = x * 2
            y = all_gather(x)
        }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y {
            twice = x * 2
            y = all_gather(twice)
        }
    """
    return Finding(f"`{name}` is a parameter and cannot be assigned", span, "assigned here",
                   (Label(parameter, "the parameter"),), "bind another name")


@rule("CD249", "result-without-value")
def result_without_value(name: str, span: Span, why: str, labels: tuple[Label, ...] = ()) -> Finding:
    """A result of an op that no statement computes.

    Results are new tensors: each is bound by a statement, and is neither a parameter nor a number.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { z = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"the result `{name}` {why}", span, "declared as a result here", labels)


@rule("CD251", "wrong-arguments")
def wrong_arguments(function: str, span: Span, why: str, usage: str) -> Finding:
    """A function gets too many, too few or the wrong kind of arguments.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        op f(p) -> y { y = reduce_scatter(p) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        op f(p) -> y { y = reduce_scatter(p, M) }
    """
    return Finding(f"`{function}` {why}", span, "", (), f"write {usage}" if usage else "")


@rule("CD252", "wrong-number-of-targets")
def wrong_number_of_targets(wanted: int, span: Span) -> Finding:
    """A statement binds several names to an expression that has one value.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y, z = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"{wanted} names for one value", span, "this expression has one value", (), "bind one name")


@rule("CD253", "no-mesh")
def no_mesh(span: Span) -> Finding:
    """A file with an op or a placement declares the mesh that they run on.

    Fails:
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding("the file declares no mesh", span, "this needs one", (), "declare it: `mesh tp[8] over nvlink`")


@rule("CD254", "used-before-declared")
def used_before_declared(name: str, span: Span, declared: Span) -> Finding:
    """A dim is computed from a dim that is declared below it, or from itself.

    Fails:
        mesh tp[4]
        dim F = 4 * H
        dim H = 64
        tensor w : bf16[F @ tp, H]
        op f(w) -> y { y = all_gather(w) }

    Mended:
        mesh tp[4]
        dim H = 64
        dim F = 4 * H
        tensor w : bf16[F @ tp, H]
        op f(w) -> y { y = all_gather(w) }
    """
    return Finding(f"`{name}` has no size yet", span, "used here", (Label(declared, "declared here"),),
                   f"declare `{name}` first")
