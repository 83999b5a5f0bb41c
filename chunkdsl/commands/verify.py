"""`chunkdsl verify`: prove a spec, run its module on simulated ranks, compile it for every target."""

from __future__ import annotations

import argparse
import shlex
import sys
import time

from chunkdsl.arguments import add_dims, add_worlds, exit_code, world_sizes

DEFAULT_WORLDS = ((2, 4), ((2, 2), (1, 2)))  # by the number of mesh axes; where a plan serves none, the mesh's own


def configure(subparsers) -> None:
    parser = subparsers.add_parser("verify", help="prove, simulate and compile a spec's module", description=__doc__)
    parser.add_argument("spec", metavar="SPEC")
    add_worlds(parser, "world sizes to prove and run, such as 2,4,8; default: 2,4 (two axes: 2x2,1x2)")
    parser.add_argument(
        "--seeds", type=_seeds, default=2, metavar="N", help="orders of the simulator's steps; default: 2"
    )
    add_dims(parser)
    parser.add_argument("--full-size", action="store_true", help="run the spec's sizes, not small ones (hours)")
    parser.add_argument("--no-compile", action="store_true", help="leave ahead-of-time compilation out")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    parser.set_defaults(run=run)


def _seeds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"a number from 1 to 10000, not {text!r}")
    return int(text)


def command(args: argparse.Namespace) -> str:
    """The command as given, without what says which part of the work to do."""
    dims = [word for name, value in args.dims for word in ("--dim", f"{name}={value}")]
    return shlex.join(["chunkdsl", "verify", args.spec, *dims, *(["--full-size"] if args.full_size else [])])


def run(args: argparse.Namespace) -> int:
    """0 when everything holds, 1 when the spec has errors or a check fails, 2 when it could not run."""
    from chunkdsl import pipeline
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.options import bind_dims
    from chunkdsl.check.worlds import served
    from chunkdsl.report.output import write

    checked = pipeline.read_one(args.spec)
    report = checked.report
    if not report.failed:
        sizes = bind_dims(checked.schedule.ranges, dict(args.dims), report)
        default = DEFAULT_WORLDS[len(checked.schedule.mesh.axes) > 1]
        default = tuple(w for w in default if served(checked.schedule, w)) or (checked.schedule.world,)
        worlds = fit_worlds(world_sizes(args) or default, checked.schedule.mesh, report)
    if report.failed:
        write([report], "json" if args.json else "text")
        return exit_code([report])
    from chunkdsl.report.verification import render_json, render_table
    from chunkdsl.verify.verify import bounded, verify

    started = time.perf_counter()
    rows = verify(
        checked.program,
        bounded(checked.schedule, sizes),
        worlds,
        args.seeds,
        full_size=args.full_size,
        compiled=not args.no_compile,
        command=command(args),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    spent = time.perf_counter() - started
    print(render_json(args.spec, rows) if args.json else render_table(args.spec, rows, spent))
    return 0 if all(r.passed for r in rows) else 1
