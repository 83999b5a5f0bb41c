"""Where the text of a module takes notes, for check_gluon.py: in its functions of specialised warps each wait, each
signal and each tile that is complete, or begins to add up what others sent, leaves one in the state of its rank.

A note is four words: kind and who took it, an address in two, a number. Who is the program and the first warp of the
partition, so that notes of one partition can be told from those of others; notes of a rank are numbered by one word.
What is planted (`PLANTS`) is a fault that the notes must show.

It works on the text that templates print and knows their shapes: what it finds no place in is a ValueError, so that a
template that changes is not taken for one that is right.
"""

from __future__ import annotations

import re

NOTES = 1 << 14  # of a call; the last one is written over by any that are more
HEAD = 32  # words of the state before them; word 16 counts them
WAIT, SIGNAL, STORED, WHOLE, ADDS, KEPT = 1, 2, 3, 4, 5, 6
PARTITION = 32  # more than the warps of a program
HALF = "(row // BM * 1024 + col // BN) * 4"  # the number in notes of sums: plus 0 or 1 a half of a tile, plus 2 both
NOTE = f'''@triton.jit
def note(kind, flag, value, state):
    """Where the notes of this rank end, and one more: kind and who, address, value."""
    at = tl.minimum(tl.atomic_add(state + 16, 1, sem="relaxed", scope="gpu"), {NOTES - 1})
    thread = tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    who = tl.program_id(0) * {PARTITION} + thread // 32
    address = flag.to(tl.int64)
    tl.store(state + {HEAD} + 4 * at, kind + 8 * who)
    tl.store(state + {HEAD + 1} + 4 * at, (address & 0xFFFFFFFF).to(tl.int32))
    tl.store(state + {HEAD + 2} + 4 * at, (address >> 32).to(tl.int32))
    tl.store(state + {HEAD + 3} + 4 * at, value)


'''
AWAIT = r"ok = \w+_await\((?:.*\n)+?.*# fmt: skip\n"  # an own tile of a sum waits for the addends of the others
PLANTS = {  # (in which functions, what, by what)
    "wait": (r"@gluon\.jit\ndef \w+_load\(|^def \w+_await\(", r"word = (owner|source) \* (\w*chunk_cap) \+ c\b",
             r"word = \1 * \2 + 0 * c"),
    "early": (r"^def arrive_in\(", r"return last$",
              "return (before < expected // 2) & (before + share >= expected // 2)"),
    "add": (r"^def \w+_keep\(", rf"^ +({AWAIT})((?:.*\n)+?)( +)bulk_wait", r"\2\3\1\3bulk_wait"),
    "last": (r"^def \w+_multiply\(", AWAIT, "ok = tl.cast(1, tl.int32)\n"),
}  # fmt: skip
COUNTING = re.compile(  # in a function that counts tiles in chunks; where sums stay, tiles that are sent are counted
    r"^(?P<sent>(?P<out> +)if owner != rank:\n)?^(?P<pad> +)(?P<loop>for c in range\(.*\):)\n(?:.*\n){2}"
    r" +if arrive_in\((?P<counter>.*), (?P<share>\d), 2 \* tiles_of_chunk\):\n", re.M)  # fmt: skip
CHOSEN = re.compile(r"^ +counters = (.*)\n(?: +\w+ = .*\n)*\Z", re.M)  # the counters of either destination
ADDING = re.compile(r"^( +)for strip in range\(", re.M)


def instrumented(text: str, plant: str = "") -> str:
    """A module whose waits and signals leave notes. ValueError if it has no place for them or for what is planted."""
    if plant:
        where, what, by = PLANTS[plant]
        parts = [(part, re.search(where, part, re.M)) for part in text.split("\n\n\n")]
        planted = "\n\n\n".join(re.sub(what, by, part, flags=re.M) if at else part for part, at in parts)
        if planted == text:
            raise ValueError(f"there is nothing to plant a wrong {plant} in")
        text = planted
    text = "@gluon.jit".join([counted(part) if i else part for i, part in enumerate(text.split("@gluon.jit"))])
    places = (
        ("@triton.jit\ndef wait_flag(", NOTE + "@triton.jit\ndef wait_flag("),
        ("    return (seen - epoch >= 0).to(tl.int32)\n",
         f"    note({WAIT}, flag, epoch, state)\n    return (seen - epoch >= 0).to(tl.int32)\n"),
        ("    tl.atomic_xchg(flag, epoch, mask=live != 0, sem=\"release\", scope=\"sys\")\n",
         "    tl.atomic_xchg(flag, epoch, mask=live != 0, sem=\"release\", scope=\"sys\")\n"
         f"    note({SIGNAL}, flag, epoch, state)\n"),
    )  # fmt: skip
    for old, new in places:
        if text.count(old) != 1:
            raise ValueError(f"{old.strip().splitlines()[-1]} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


def counted(function: str) -> str:
    """A function of specialised warps that notes what it counts in chunks, and what it adds up. ValueError if it has
    no place for that."""
    if re.match(r"\ndef \w+_add_piece\(", function):
        function, places = ADDING.subn(rf"\1note({ADDS}, state, {HALF} + SIDE, state)\n\g<0>", function)
        if places != 1:
            raise ValueError(f"what a storer adds begins at {places} places")
    chunks = COUNTING.search(function)
    if chunks is None:
        return function
    outer, counter = chunks["out"] or chunks["pad"], chunks["counter"]
    head = function[: chunks.start()]
    if chosen := CHOSEN.search(head):
        counter = re.sub(r"^counters\b", chosen[1], counter)

    def complete(match: re.Match) -> str:
        pad = outer if "elif" in match[0] else re.search(r" +(?=.*\n\Z)", match[0])[0]
        notes = [f"{chunks['loop']}", f"    note({STORED}, {counter}, {chunks['share']}, state)"]
        if chunks["sent"]:
            notes = ["if owner != rank:", *(f"    {line}" for line in notes)]
        if re.search(AWAIT, function):
            half = "SIDE" if "SIDE" in function else "2"
            notes = ["if owner == rank:", f"    note({KEPT}, state, {HALF} + {half}, state)", *notes]
        return match[0] + "".join(f"{pad}{line}\n" for line in notes)

    noting, places = complete_at(outer).subn(complete, head)
    if not places:
        raise ValueError("nothing says when a tile is complete")
    whole = f"{chunks['pad']}        note({WHOLE}, {chunks['counter']}, epoch, state)\n"
    return f"{noting}{chunks[0]}{whole}{function[chunks.end() :]}"


def complete_at(outer: str) -> re.Pattern:
    """Behind what a tile is complete, in a function that counts it at the depth `outer`: all is written; nothing was to
    be written; the producer has no tile to announce, and has waited where it is an own one of a sum."""
    written = r"^ +bulk_wait\(NVIDIA\).*\n"
    nothing = rf"^{outer}else:\n(?:{outer}    hopper\.mbarrier.*\n)+"
    producer = rf"^{outer[4:]}elif ok != 0:.*\n(?:{outer}if owner == rank:\n{outer}    {AWAIT})?"
    choice = rf"(?=(?:{outer}(?:#|counters|flags|many).*\n)*\Z)"
    return re.compile(f"{written}|{nothing}|{producer}{choice}", re.M)
