"""`chunkdsl explain`: what a rule asks for and why, an example that breaks it and the same example mended."""

from __future__ import annotations

import argparse
import sys


def configure(subparsers) -> None:
    parser = subparsers.add_parser("explain", help="say what a rule means", description=__doc__)
    rule = parser.add_argument("rule", nargs="?", metavar="CODE|NAME", help="a rule; without it all are listed")
    rule.completer = _rules
    parser.add_argument("--search", nargs="+", metavar="WORD",
                        help="list the rules whose name or text has all of these words")
    parser.set_defaults(run=run)


def _rules(**asked) -> list[str]:
    """What a shell offers: codes and names."""
    from chunkdsl.check.explain import load_rules

    return [word for rule in load_rules().values() for word in (rule.code, rule.name)]


def run(args: argparse.Namespace) -> int:
    """0, or 2 if there is no such rule."""
    from chunkdsl.check.explain import describe, find_rule, list_rules, near_rules, search_rules

    if args.search is not None and args.rule is None:
        wanted = " ".join(args.search)
        found = search_rules(wanted)
        sys.stdout.write(list_rules(found))
        if not found:
            print(f"chunkdsl explain: no rule speaks of {wanted!r}", file=sys.stderr)
        return 0 if found else 2
    if args.rule is None:
        sys.stdout.write(list_rules())
        return 0
    rule = find_rule(args.rule)
    if rule is None:
        near = near_rules(args.rule)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `chunkdsl explain` lists all rules"
        print(f"chunkdsl explain: there is no rule {args.rule!r}{hint}", file=sys.stderr)
        return 2
    sys.stdout.write(describe(rule))
    return 0
