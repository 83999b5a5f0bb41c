"""The rules as `chunkdsl explain` prints them: all of them in a list, or one with its examples."""

from __future__ import annotations

import pkgutil
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module

from chunkdsl import check
from chunkdsl.check.registry import RULES, Rule


def load_rules() -> dict[str, Rule]:
    """Every rule by code, in order of code. Imports the modules of `check/`, which register them."""
    for module in pkgutil.iter_modules(check.__path__):
        if not module.ispkg:
            import_module(f"{check.__name__}.{module.name}")
    return dict(sorted(RULES.items()))


def find_rule(word: str) -> Rule | None:
    """The rule with this code (in any case) or name."""
    rules = load_rules()
    named = {r.name: r for r in rules.values()}
    return rules.get(word.upper()) or named.get(word.lower())


def near_rules(word: str) -> list[str]:
    """Up to three codes or names that resemble a word: codes with the same digits or all but one, or names
    that begin with it or are like it."""
    rules = load_rules()
    code = word.upper()
    if code[:2] == "CD":
        return [c for c in rules if _slip(code, c)][:3]
    names = [r.name for r in rules.values()]
    begun = [n for n in names if n.startswith(word.lower())]
    return list(dict.fromkeys((*begun, *get_close_matches(word.lower(), names, 3, 0.6))))[:3]


def _slip(a: str, b: str) -> bool:
    if len(a) != len(b):
        return b.startswith(a) or a.startswith(b)
    return sorted(a) == sorted(b) or sum(x != y for x, y in zip(a, b, strict=True)) == 1


def search_rules(words: str) -> list[Rule]:
    """The rules in whose name or text every word occurs, or whose code starts with it; in order of code."""
    wanted = words.lower().split()
    return [r for r in load_rules().values() if all(w in f"{r.name} {r.text}".lower() or r.code.lower().startswith(w)
                                                    for w in wanted)]


def describe(rule: Rule) -> str:
    """A rule's text and examples."""
    fails, mended = (textwrap.indent(text, "    ").rstrip() for text in (rule.fails, rule.mended))
    head = f"{rule.code} {rule.name} ({rule.severity.value})"
    return f"{head}\n\n{rule.text}\n\nFails:\n\n{fails}\n\nMended:\n\n{mended}\n"


def list_rules(rules: Iterable[Rule] | None = None) -> str:
    """One line for each rule (of all if left out): code, severity, name."""
    chosen = load_rules().values() if rules is None else rules
    return "".join(f"{r.code}  {r.severity.value:<7}  {r.name}\n" for r in chosen)
