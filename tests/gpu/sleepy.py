"""An emitted module whose ranks sleep where it hurts: between their stores, or between two reads. Source to source, so
that what is tried is the emitted kernel but for the sleep.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

NAP = '''
@triton.jit
def nap(where, NS: tl.constexpr):
    """Threads whose `where` is not 0 sleep for about NS ns."""
    tl.inline_asm_elementwise(
        "nanosleep.u32 $1; mov.u32 $0, 0;", "=r,r", [where * NS], dtype=tl.int32, is_pure=False, pack=1
    )


'''
SEND = re.compile(r"^( +)((?:send_(?:words|marks)(?:_where)?|tl\.store)\(+(?:peers\[k\]|to) )", re.M)
READ = re.compile(r"^( +)data = ~tl\.load\(place, volatile=True\)\n", re.M)


def sleeping_sender(text: str, rank: int, ns: int = 50_000) -> str:
    """The upper half of each block of `rank` sleeps before every store to a peer. ValueError if there is none."""
    where = f"((rank == {rank}) & (lanes * 2 >= BLOCK)).to(tl.int32)"
    made, count = SEND.subn(rf"\1nap({where}, {ns})\n\1\2", text)
    if not count:
        raise ValueError("this module has no store to a peer")
    return _with_nap(made)


def sleeping_reader(text: str, ns: int = 50_000) -> str:
    """All ranks sleep between a speculative read and the look at its flag. ValueError if there is none."""
    made, count = READ.subn(rf"\g<0>\1nap(own * 0 + 1, {ns})\n", text)
    if not count:
        raise ValueError("this module reads nothing speculatively")
    return _with_nap(made)


def _with_nap(text: str) -> str:
    first = text.index("@triton.jit")
    return text[:first] + NAP.lstrip("\n") + text[first:]


def load_text(text: str, path: Path):
    """The module of a text, written to `path`."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
