"""`chunkdsl new`: writes a commented spec to start from: one of those that are shipped."""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import exit_code


def configure(subparsers) -> None:
    parser = subparsers.add_parser("new", help="write a spec to start from", description=__doc__)
    kind = parser.add_argument("kind", nargs="?", metavar="KIND", help="such as tp_mlp; without it all are listed")
    kind.completer = _kinds
    parser.add_argument("path", nargs="?", metavar="PATH", help="default: KIND.chunk; - for standard output")
    parser.set_defaults(run=run)


def _kinds(**asked) -> list[str]:
    """What a shell offers."""
    from chunkdsl.starts import starts

    return list(starts())


def run(args: argparse.Namespace) -> int:
    """0, or 2 if there is no such kind or the file cannot be written. An existing file is never overwritten."""
    from chunkdsl.check.files import no_such_start, unwritable_start
    from chunkdsl.diagnostics import Report
    from chunkdsl.files import STDIN
    from chunkdsl.lower.nearest import Nearest
    from chunkdsl.report.output import write
    from chunkdsl.source import Source
    from chunkdsl.starts import starts

    known = starts()
    if args.kind is None:
        widest = max(map(len, known), default=0)
        sys.stdout.write("".join(f"{name:{widest}}  {s.summary}\n" for name, s in known.items()))
        return 0
    fitting = [args.kind] if args.kind in known else [name for name in known if name.startswith(args.kind)]
    path = args.path or (f"{fitting[0]}.chunk" if len(fitting) == 1 else args.kind)
    report = Report(Source(path, ""))
    if len(fitting) != 1:
        report.add(no_such_start(args.kind, fitting, list(known), Nearest(known).of(args.kind)))
    elif path == STDIN:
        sys.stdout.write(known[fitting[0]].text)
    else:
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(known[fitting[0]].text)
        except FileExistsError:
            report.add(unwritable_start("a file of that name is there"))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            report.add(unwritable_start(getattr(error, "strerror", None) or str(error)))
    write([report], "text")
    if not report.failed and path != STDIN:
        print(path)
    return exit_code([report])
