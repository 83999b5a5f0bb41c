"""`chunkdsl check`: findings for specs, without building anything."""

from __future__ import annotations

import argparse
import sys

COULD_NOT_RUN = frozenset({"CD001", "CD002", "CD003", "CD004"})


def configure(subparsers) -> None:
    parser = subparsers.add_parser("check", help="say what is wrong with specs", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a spec, or a folder of specs")
    parser.add_argument(
        "--world", type=_worlds, default=(), metavar="LIST", help="prove for world sizes, such as 2,3,8"
    )
    parser.add_argument("--output-format", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 without errors, 1 with errors, 2 if a spec could not be read or chunkdsl failed."""
    from chunkdsl import pipeline
    from chunkdsl.report.output import write

    reports = pipeline.check(args.paths, args.world)
    write(reports, args.output_format)
    print(f"checked {len(reports)} spec{'s' * (len(reports) != 1)}", file=sys.stderr)
    if any(d.code in COULD_NOT_RUN for r in reports for d in r.diagnostics):
        return 2
    return int(any(r.failed for r in reports))


def _worlds(text: str) -> tuple[int, ...]:
    try:
        worlds = sorted({int(w) for w in text.split(",")})
    except ValueError:
        worlds = [0]
    if worlds[0] < 1:
        raise argparse.ArgumentTypeError(f"world sizes are positive integers, as in 2,3,8; not {text!r}")
    return tuple(worlds)
