"""`chunkdsl check`: findings for specs, without building anything."""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import add_worlds, exit_code, world_sizes


def configure(subparsers) -> None:
    parser = subparsers.add_parser("check", help="say what is wrong with specs", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a spec, or a folder of specs")
    add_worlds(parser, "prove for world sizes, such as 2,3,8")
    parser.add_argument("--output-format", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 without errors, 1 with errors, 2 if a spec could not be read or chunkdsl failed."""
    from chunkdsl import pipeline
    from chunkdsl.report.output import write

    reports = pipeline.check(args.paths, world_sizes(args))
    write(reports, args.output_format)
    print(f"checked {len(reports)} spec{'s' * (len(reports) != 1)}", file=sys.stderr)
    return exit_code(reports)
