"""Arguments and exit codes that several commands share. Knows nothing of specs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkdsl.diagnostics import Report
    from chunkdsl.ir.meshes import World

COULD_NOT_RUN = frozenset((
    "CD001 CD002 CD003 CD004 CD007 CD008 CD009 CD010 CD012 CD013 CD014 CD016"
    " CD017 CD018 CD019 CD020 CD021 CD031 CD032 CD033 CD034 CD036 CD037 CD039 CD040"
).split())
LARGEST_WORLD = 1024
FORMATS = ("text", "concise", "json", "github", "sarif")


def exit_code(reports: Iterable[Report]) -> int:
    """0 without errors, 1 with errors, 2 if something could not be read, written or run."""
    reports = list(reports)
    if any(d.code in COULD_NOT_RUN for r in reports for d in r.diagnostics):
        return 2
    return int(any(r.failed for r in reports))


def add_worlds(parser: argparse.ArgumentParser, what: str) -> None:
    """`--world 2,3,8` or `--world 2x2,2x4`, which may be given several times; `world_sizes(args)` reads it."""
    parser.add_argument("--world", type=_worlds, action="extend", default=[], metavar="LIST", help=what)


def world_sizes(args: argparse.Namespace) -> tuple[World, ...]:
    """Ascending, each once."""
    return tuple(sorted(set(args.world), key=lambda w: (isinstance(w, tuple), w)))


def world_size(text: str) -> World:
    """Argument type: one world size."""
    return _world(text, f"a world size is an integer from 1 to {LARGEST_WORLD}, or as 2x4 has it; not {text!r}")


def _worlds(text: str) -> tuple[World, ...]:
    wrong = f"world sizes are integers from 1 to {LARGEST_WORLD}, as in 2,3,8, or 2x4 on two axes; not {text!r}"
    return tuple(_world(part, wrong) for part in text.split(","))


def _world(text: str, wrong: str) -> World:
    if "x" not in text:
        return _positive(text, wrong)
    sizes = tuple(_positive(part, wrong) for part in text.split("x"))
    if len(sizes) != 2 or sizes[0] * sizes[1] > LARGEST_WORLD:
        raise argparse.ArgumentTypeError(wrong)
    return sizes


def _positive(text: str, wrong: str) -> int:
    value = int(text) if text.strip().isdecimal() and text.isascii() and len(text) < 12 else 0
    if not 1 <= value <= LARGEST_WORLD:
        raise argparse.ArgumentTypeError(wrong)
    return value


def add_dims(parser: argparse.ArgumentParser) -> None:
    """`--dim M=4096`, which may be given for several dims; `dict(args.dims)` is the value of each."""
    what = "value of a run-time dim; default: the upper bound of its range"
    parser.add_argument("--dim", dest="dims", type=_dim, action="append", default=[], metavar="NAME=VALUE", help=what)


def _dim(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name.isidentifier() or not (value.isascii() and value.isdecimal()) or len(value) > 18:
        raise argparse.ArgumentTypeError(f"a dim is bound as in M=4096, not {text!r}")
    return name, int(value)
