"""`chunkdsl tune`: measures what `auto` may become on the GPUs here, and keeps it in SPEC.tuned.json for `build`.

    chunkdsl tune SPEC                          all of it, a process for each GPU
    chunkdsl tune SPEC --prepare FOLDER         in three parts: modules are made, without a GPU,
    chunkdsl tune --measure FOLDER              measured where the GPUs are (torch and Triton are enough there),
    chunkdsl tune SPEC --collect FOLDER         and the results taken back to the spec

What is measured next is decided by one process, which writes the file after every setting; all ranks do as they are
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
    parser.add_argument("spec", metavar="SPEC", nargs="?")
    parser.add_argument(
        "--shapes", type=_shapes, action="append", default=[], metavar="[OP.]NAME=VALUE[,VALUE...]",
        help="sizes of a run-time dim to measure; default: the largest of its range, a quarter and a sixteenth of it",
    )  # fmt: skip
    parser.add_argument("--op", dest="ops", action="append", default=[], metavar="NAME", help="default: all ops")
    limit = f"in which all shall be done; default: {MINUTES:g}"
    parser.add_argument("--minutes", type=_minutes, default=MINUTES, metavar="N", help=limit)
    parser.add_argument("--fresh", action="store_true", help="start anew, and write over the results that are there")
    parser.add_argument("--plot", metavar="FILE", help="*.html or *.svg of what was tried; default: SPEC.tuned.html")
    parser.add_argument("--world", type=world_size, metavar="N", help="ranks; default: the mesh's, or all GPUs")
    parser.add_argument("--most", type=_count, default=24, metavar="N", help="settings of an op that are prepared")
    parser.add_argument("--share-gpu", action="store_true", help="let ranks share a GPU; not for `build`")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--rehearse", action="store_true", help="without GPUs: the cost model's times; not for `build`")
    part.add_argument("--prepare", metavar="FOLDER", help="make the modules to measure, and measure nothing")
    part.add_argument("--measure", metavar="FOLDER", help="measure what was prepared; takes no SPEC")
    part.add_argument("--collect", metavar="FOLDER", help="take results from there (or from a file) to the spec")
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """0, 1 if the spec has errors, 2 if something could not be read, written or run.

    Standard output holds what was found and the paths of the files; progress goes to standard error.
    """
    from chunkdsl.report.output import write

    if (args.measure is None) != (args.spec is not None):
        args.usage("SPEC is missing" if args.measure is None else "--measure takes no SPEC: the folder says which")
    report, text = _done(args)
    write([report], "text", sys.stdout if report.failed else sys.stderr)
    sys.stdout.write("" if report.failed else text)
    return exit_code([report])


def _done(args: argparse.Namespace):
    """The report, and what was found as text."""
    from chunkdsl import kits
    from chunkdsl.tuning import Options, rehearse

    options = _options(args, Options)
    if args.rehearse:
        return rehearse(args.spec, args.world, options, sys.stderr)
    if args.prepare is not None:
        return kits.write(args.spec, args.prepare, args.world, options, args.most, sys.stderr)
    if args.collect is not None:
        return kits.collect(args.spec, args.collect, options)
    return _on_gpus(args, options)


def _on_gpus(args: argparse.Namespace, options):
    from dataclasses import replace

    from chunkdsl import kits
    from chunkdsl.check.tuning import cannot_tune_here
    from chunkdsl.diagnostics import Report
    from chunkdsl.source import Source
    from chunkdsl.tune.gpu import Benches, CannotTune, gpus_here
    from chunkdsl.tuning import tune

    benches = None
    try:
        gpus = gpus_here()
        benches = Benches(gpus, args.share_gpu)
        if args.measure is not None:
            return kits.measure(args.measure, benches.of_kit, options, sys.stderr)
        options = replace(options, most=0 if args.share_gpu else gpus)
        return tune(args.spec, args.world, benches.of_spec, options, sys.stderr)
    except CannotTune as why:
        report = Report(Source(args.spec or args.measure, ""))
        report.add(cannot_tune_here(why.what, why.help))
        return report, ""
    finally:
        if benches:
            benches.end()


def _options(args: argparse.Namespace, kind):
    shapes: dict[str, tuple[int, ...]] = {}
    for name, values in args.shapes:
        shapes[name] = tuple(dict.fromkeys((*shapes.get(name, ()), *values)))
    return kind(shapes, tuple(dict.fromkeys(args.ops)), 60 * args.minutes, args.fresh, args.plot or "")


def _shapes(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, values = text.partition("=")
    found = values.split(",")
    words, digits = name.split("."), all(v.isascii() and v.isdecimal() and len(v) < 18 for v in found)
    if len(words) > 2 or not all(map(str.isidentifier, words)) or not digits:
        raise argparse.ArgumentTypeError(f"sizes are given as in M=512,4096 or mlp.M=512, not {text!r}")
    return name, tuple(map(int, found))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1000):
        raise argparse.ArgumentTypeError(f"a number from 1 to 999, not {text!r}")
    return int(text)


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 24 * 60:
        raise argparse.ArgumentTypeError(f"minutes are a number above 0, at most {24 * 60}, not {text!r}")
    return value
