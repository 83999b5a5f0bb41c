"""All lints over one compiled kernel. The rules are those of synchronisation: each lint's docstring says why.

A finding is text evidence, not a proof; silence means that none of these faults is visible, no more. On AMD the lints
over TTGIR, amdgcn and the source run, those over PTX do not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from chunkdsl.aot import (
    lint_amdgcn,
    lint_flags,
    lint_gathered,
    lint_memory,
    lint_order,
    lint_pipeline,
    lint_retry,
    lint_source,
)
from chunkdsl.aot.findings import LINTS, Finding, Lint
from chunkdsl.aot.targets import Compiled, find_target

__all__ = ["FAMILIES", "LINTS", "Finding", "Lint", "lint"]

FAMILIES = (
    lint_pipeline, lint_gathered, lint_order, lint_flags, lint_retry, lint_memory, lint_amdgcn, lint_source,
)  # fmt: skip


def lint(
    compiled: Compiled, target: str = "", kernel_source: str = "", skip: frozenset[str] = frozenset()
) -> list[Finding]:
    """Findings of every lint that fits `target` (the one compiled for, if empty), by text and line.

    `kernel_source` is the Python text of the kernel's module ("" leaves the source lints out). `skip` names lints to
    leave out; ValueError for a name that there is none of.
    """
    unknown = skip - LINTS.keys()
    if unknown:
        raise ValueError(f"no lint called {', '.join(sorted(unknown))}")
    chosen = find_target(target or compiled.target)
    texts = {"ttgir": compiled.ttgir, "ptx": compiled.ptx, "amdgcn": compiled.amdgcn, "source": kernel_source}
    texts |= {"compiled": compiled}
    found = []
    for rule in LINTS.values():
        if rule.name not in skip and texts[rule.text] and (chosen.nvidia or not rule.nvidia_only):
            text = texts[rule.text]
            told = _run_once(rule, text) if rule.text == "source" else rule.run(text)
            found += [replace(f, kernel=compiled.kernel, target=chosen.name) for f in told]
    return sorted(found, key=lambda f: (f.text, f.line, f.lint))


@lru_cache(maxsize=16)
def _run_once(rule: Lint, text: str) -> tuple[Finding, ...]:
    """A module's source is the same for each of its kernels and for each target."""
    return tuple(rule.run(text))
