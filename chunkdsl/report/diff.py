"""What a change of a text changes, as `diff -u` writes it."""

from __future__ import annotations

from difflib import unified_diff


def render(path: str, old: str, new: str) -> str:
    """"" if nothing changes."""
    lines = []
    for line in unified_diff(_lines(old), _lines(new), path, path):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """Lines end with a line feed and nothing else, as an editor counts them."""
    parts = text.split("\n")
    return [f"{p}\n" for p in parts[:-1]] + [p for p in parts[-1:] if p]
