"""`chunkdsl tune`: measures what `auto` may become on the GPUs here, and keeps it in SPEC.tuned.json for `build`.

    torchrun --nproc-per-node 2 -m chunkdsl tune SPEC

Rank 0 reads the spec, decides what is measured next and writes the file after every setting; the others do as they are
told. Started again it goes on where it stopped. Never run by a module.
"""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import exit_code, world_size

MINUTES = 10.0


def configure(subparsers) -> None:
    parser = subparsers.add_parser(
        "tune", help="measure what auto may become", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "--shapes", type=_shapes, action="append", default=[], metavar="NAME=VALUE[,VALUE...]",
        help="sizes of a run-time dim to measure; default: the largest of its range, a quarter and a sixteenth of it",
    )  # fmt: skip
    limit = f"after which no further setting is begun; default: {MINUTES:g}"
    parser.add_argument("--minutes", type=_minutes, default=MINUTES, metavar="N", help=limit)
    parser.add_argument("--fresh", action="store_true", help="start anew, and write over the results that are there")
    parser.add_argument("--plot", metavar="FILE", help="*.html or *.svg of what was tried; default: SPEC.tuned.html")
    parser.add_argument("--rehearse", action="store_true", help="without GPUs: the cost model's times; not for `build`")
    parser.add_argument("--world", type=world_size, metavar="N", help="ranks of a rehearsal; default: the mesh's")
    parser.add_argument("--share-gpu", action="store_true", help="let ranks share a GPU; not for `build`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0, 1 if the spec has errors, 2 if something could not be read, written or run.

    Standard output holds what was found and the paths of both files; progress goes to standard error.
    """
    from chunkdsl.diagnostics import Report
    from chunkdsl.report.output import write
    from chunkdsl.source import Source
    from chunkdsl.tuning import Options, rehearse, tune

    if args.rehearse:
        report, text = rehearse(args.spec, args.world, _options(args, Options), sys.stderr)
    else:
        from chunkdsl.check.tuning import cannot_tune_here
        from chunkdsl.tune.gpu import CannotTune, ranks

        try:
            with ranks(args.share_gpu) as here:
                if here.rank:
                    here.serve()
                    return 0
                report, text = tune(args.spec, here.world, here.clock, _options(args, Options), sys.stderr)
        except CannotTune as why:
            report, text = Report(Source(args.spec, "")), ""
            report.add(cannot_tune_here(why.what, why.help))
    write([report], "text", sys.stdout if report.failed else sys.stderr)
    sys.stdout.write("" if report.failed else text)
    return exit_code([report])


def _options(args: argparse.Namespace, kind):
    shapes: dict[str, tuple[int, ...]] = {}
    for name, values in args.shapes:
        shapes[name] = tuple(dict.fromkeys((*shapes.get(name, ()), *values)))
    return kind(shapes, 60 * args.minutes, args.fresh, args.plot or "")


def _shapes(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, values = text.partition("=")
    found = values.split(",")
    if not name.isidentifier() or not all(v.isascii() and v.isdecimal() and len(v) < 18 for v in found):
        raise argparse.ArgumentTypeError(f"sizes are given as in M=512,4096, not {text!r}")
    return name, tuple(map(int, found))


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 24 * 60:
        raise argparse.ArgumentTypeError(f"minutes are a number above 0, at most {24 * 60}, not {text!r}")
    return value
