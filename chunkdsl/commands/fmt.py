"""`chunkdsl fmt`: puts specs into the canonical layout. Changes blanks, line breaks and nothing that has a meaning."""

from __future__ import annotations

import argparse
import sys

from chunkdsl.arguments import exit_code


def configure(subparsers) -> None:
    parser = subparsers.add_parser("fmt", help="format specs in place", description=__doc__)
    what = "a spec, a folder of specs, or - for standard input; default: `paths` of [tool.chunkdsl] in pyproject.toml"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=what)
    parser.add_argument("--check", action="store_true", help="write nothing; name the specs that are not formatted")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    """0 if every spec is formatted now (with --check or --diff: was so before), 1 if not, 2 if one could not be read
    or written. A spec that does not parse is left as it is."""
    from chunkdsl import files
    from chunkdsl.crash import explain_crash
    from chunkdsl.report.output import write
    from chunkdsl.settings import Settings, read_settings
    from chunkdsl.syntax.format import format_source

    settings, problem = (Settings(), None) if args.paths else read_settings()
    paths = args.paths or settings.paths
    if not paths and problem is None:
        args.usage_error("name a spec or a folder, or set `paths` under [tool.chunkdsl] in pyproject.toml")
    reports, changed = [problem] if problem is not None else [], 0
    if files.STDIN in paths:
        reports.append(files.read_stdin())
    reports += files.read(p for p in paths if p != files.STDIN)
    for report in reports:
        formatted = None
        if not report.failed:
            try:
                formatted = format_source(report.source, report)
            except Exception as error:
                report.add(explain_crash(error))
        if formatted is not None and (formatted != report.source.text or report.source.path == files.STDIN):
            changed += _handle(args, report, formatted)
    write([r for r in reports if r.failed], "text", sys.stderr if files.STDIN in paths else sys.stdout)
    verb = "would be" if args.check or args.diff else "were" if changed != 1 else "was"
    print(f"{changed} of {len(reports)} spec{'s' * (len(reports) != 1)} {verb} reformatted", file=sys.stderr)
    return exit_code(reports) or int((args.check or args.diff) and changed > 0)


def _handle(args: argparse.Namespace, report, formatted: str) -> bool:
    """Do with a formatted text what is asked for; whether it is another than before."""
    from chunkdsl import files
    from chunkdsl.report import diff

    path, differs = report.source.path, formatted != report.source.text
    if args.diff:
        sys.stdout.write(diff.render(path, report.source.text, formatted))
    elif args.check:
        if differs:
            print(f"{path} is not formatted")
    elif path == files.STDIN:
        sys.stdout.write(formatted)
    else:
        return files.rewrite(report, formatted)
    return differs
