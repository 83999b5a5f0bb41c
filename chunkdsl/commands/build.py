"""`chunkdsl build`: proves a spec and writes its module. Nothing is written for a spec with errors."""

from __future__ import annotations

import argparse
import shlex
import sys

from chunkdsl.arguments import add_worlds, exit_code, world_sizes

FOLDER = "build"


def configure(subparsers) -> None:
    parser = subparsers.add_parser("build", help="write the module of a spec", description=__doc__)
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("-o", dest="folder", default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER}")
    add_worlds(parser, "world sizes to prove beside 1 to 16 and the mesh's own, such as 24,32")
    parser.add_argument("--only", action="store_true", help="prove those and the mesh's own alone, not 1 to 16")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the module on disk is stale")
    parser.add_argument("--output-format", choices=("text", "json"), default="text", help="of findings; default: text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 if the module is as it should be, 1 with errors or a stale module, 2 if something could not be read or written.

    Standard output holds the module's path; where there is none because of errors, or with JSON, it holds the findings.
    """
    from chunkdsl import pipeline
    from chunkdsl.render.write import module_path
    from chunkdsl.report.output import write

    built = pipeline.build(args.spec, world_sizes(args), args.only)
    report, path = built.report, module_path(args.folder, args.spec)
    if not report.failed:
        finish = _compare if args.check else _store
        finish(built.module, path, args, report)
    findings_first = report.failed or args.output_format == "json"
    write([report], args.output_format, sys.stdout if findings_first else sys.stderr)
    if not report.failed:
        print(path, file=sys.stderr if findings_first else sys.stdout)
    return exit_code([report])


def _store(module: str, path: str, args: argparse.Namespace, report) -> None:
    from chunkdsl.check.options import unwritable_output
    from chunkdsl.render.write import NotGenerated, write_module

    try:
        write_module(path, module)
    except (OSError, NotGenerated, ValueError) as error:  # ValueError: a NUL in the path
        report.add(unwritable_output(path, getattr(error, "strerror", None) or str(error)))


def _compare(module: str, path: str, args: argparse.Namespace, report) -> None:
    from chunkdsl.check.options import stale_module
    from chunkdsl.ir.meshes import worlds_text
    from chunkdsl.render.write import difference

    what = difference(path, module)
    if what:
        command = ["chunkdsl", "build", args.spec]
        command += ["-o", args.folder] if args.folder != FOLDER else []
        command += ["--world", worlds_text(world_sizes(args))] if args.world else []
        command += ["--only"] if args.only else []
        report.add(stale_module(path, what, shlex.join(command)))
