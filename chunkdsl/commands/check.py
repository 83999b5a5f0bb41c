"""`chunkdsl check`: findings for specs, without building anything."""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import FORMATS, add_worlds, exit_code, world_sizes


def configure(subparsers) -> None:
    parser = subparsers.add_parser("check", help="say what is wrong with specs", description=__doc__)
    what = "a spec, a folder of specs, or - for standard input; default: `paths` of [tool.chunkdsl] in pyproject.toml"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=what)
    add_worlds(parser, "prove for world sizes, such as 2,3,8")
    parser.add_argument("--fix", action="store_true", help="mend what can be mended only one way")
    parser.add_argument("--unsafe-fixes", action="store_true", help="mend also by guesses; implies --fix")
    parser.add_argument("--diff", action="store_true", help="show what --fix would change; write nothing")
    codes = {"type": _selectors, "action": "extend", "default": [], "metavar": "CODES"}
    parser.add_argument("--select", **codes, help="report only these codes or families, such as CD2,CD101")
    parser.add_argument("--ignore", **codes, help="do not report these codes or families")
    parser.add_argument("--output-format", choices=FORMATS, default="text", help="default: text")
    parser.set_defaults(run=run, usage_error=parser.error)


def _selectors(text: str) -> list[str]:
    from chunkdsl.settings import selectors, unknown_selectors

    try:
        found = list(selectors(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"codes or families, such as CD2,CD101; not {text!r}") from None
    for code, near in unknown_selectors(found).items():
        hint = f"did you mean {' or '.join(near)}?" if near else "`chunkdsl explain` lists all rules"
        raise argparse.ArgumentTypeError(f"there is no rule {code}; {hint}")
    return found


def run(args: argparse.Namespace) -> int:
    """0 without errors (with --diff: and without changes), 1 with errors, 2 if a spec could not be read or chunkdsl
    failed."""
    from chunkdsl import files, pipeline
    from chunkdsl.report.output import write
    from chunkdsl.settings import Settings, read_settings

    settings, problem = read_settings()
    paths = args.paths or settings.paths
    if not paths and problem is None:
        args.usage_error("name a spec or a folder, or set `paths` under [tool.chunkdsl] in pyproject.toml")
    if files.STDIN in paths and (args.fix or args.unsafe_fixes) and not args.diff:
        args.usage_error("standard input cannot be mended in place: use --diff")
    wanted = Settings(tuple(args.select) or settings.select, (*settings.ignore, *args.ignore))
    reports = pipeline.check(paths, world_sizes(args))
    changed = 0
    if args.fix or args.unsafe_fixes or args.diff:
        reports, changed = _mend(reports, wanted, args)
    for report in reports:
        report.keep(wanted.wants)
    reports = [problem, *reports] if problem is not None else reports
    write(reports, args.output_format, sys.stderr if args.diff else sys.stdout)
    specs = len(reports) - (problem is not None)
    print(f"checked {specs} spec{'s' * (specs != 1)}", file=sys.stderr)
    return exit_code(reports) or int(args.diff and changed > 0)


def _mend(reports: list, wanted, args: argparse.Namespace) -> tuple[list, int]:
    """The reports of the mended texts, and how many texts differ. Writes them, or with --diff shows the difference."""
    from chunkdsl import files, pipeline
    from chunkdsl.diagnostics import Report
    from chunkdsl.mend import mend
    from chunkdsl.report import diff

    def check(source) -> Report:
        report = pipeline.check_one(Report(source), world_sizes(args))
        report.keep(wanted.wants)
        return report

    after, count, specs = [], 0, 0
    for report in reports:
        report.keep(wanted.wants)
        mended, fixes = mend(report, check, args.unsafe_fixes)
        if fixes and args.diff:
            sys.stdout.write(diff.render(report.source.path, report.source.text, mended.source.text))
        elif fixes:
            mended, fixes = (mended, fixes) if files.rewrite(report, mended.source.text) else (report, 0)
        after.append(mended)
        count, specs = count + fixes, specs + bool(fixes)
    verb = "would fix" if args.diff else "fixed"
    print(f"{verb} {count} finding{'s' * (count != 1)} in {specs} spec{'s' * (specs != 1)}", file=sys.stderr)
    return after, specs
