"""`chunkdsl plan`: what each `auto` became and why, launches, chunks, transfers, signals, memory, bytes on the link,
and how long the cost model says that it takes."""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import add_dims, exit_code, world_size


def configure(subparsers) -> None:
    parser = subparsers.add_parser("plan", help="show what a call of each op does", description=__doc__)
    parser.add_argument("spec", metavar="SPEC")
    ranks = "ranks, such as 8, or 2x4 on a mesh of two axes; default: what the mesh declares"
    parser.add_argument("--world", type=world_size, metavar="N", help=ranks)
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="whose transfers and signals; default: 0")
    add_dims(parser)
    parser.add_argument(
        "--json", dest="output_format", action="store_const", const="json", default="text",
        help="one JSON array, with the whole plan of every op",
    )  # fmt: skip
    parser.add_argument(
        "--route", metavar="NAME", help="write a plan of the spec, for --world ranks, as the JSON that `use plan` reads"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0, 1 if the spec has errors, 2 if it could not be read or an option does not fit it.

    Standard output holds the plans, or the route that `--route` names; where there are none because of errors, it holds
    the findings.
    """
    from chunkdsl import pipeline
    from chunkdsl.report.output import write

    if args.route is not None:
        report, text = pipeline.route(args.spec, args.route, args.world)
        write([report], args.output_format if report.failed else "text", sys.stdout if report.failed else sys.stderr)
        sys.stdout.write(text)
        return exit_code([report])
    planned = pipeline.plan(args.spec, args.world, args.rank, dict(args.dims))
    report = planned.checked.report
    write([report], args.output_format if report.failed else "text", sys.stdout if report.failed else sys.stderr)
    if not report.failed and args.output_format == "json":
        from chunkdsl.report import plan_json

        predictions = pipeline.predict_planned(planned)
        sys.stdout.write(plan_json.render([(p.op, p.plan, p.summary) for p in planned.ops], predictions))
    elif not report.failed:
        from chunkdsl.report import plan_text

        notes = {p.op.name: p.note for p in planned.ops if p.note}
        plans = [(p.op, p.summary) for p in planned.ops]
        predictions = pipeline.predict_planned(planned)
        sys.stdout.write(plan_text.render(planned.checked.schedule, plans, notes, predictions))
    return exit_code([report])
