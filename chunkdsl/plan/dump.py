"""The JSON form of a plan: versioned, one buffer, signal or task a line, the same bytes for the same plan.

    {"format": 1, "op": ..., "spec": ..., "world": ..., "calls": [{"M": 4096}, ...],
     "buffers": [{"name", "kind", "dtype", "rows", "cols", "slots" (1)}, ...],
     "lanes":   [{"name", "serial", "launch" (""), "programs" (0), "behind" ("")}, ...],
     "signals": [{"flags", "owner", "index", "signaller", "call", "label" ("")}, ...],
     "tasks":   [{"name", "rank", "lane", "call", "kind", "line",
                  "accesses" ([]): [{"act", "region", "source" (none), "what" (""), "mask" ("0x1"), "origin" ([0, 0])}],
                  "after" ([]), "waits" ([]), "signals" ([]), "count" (1)}, ...]}

A region is [buffer, rank, slot, row0, row1, col0, col1]; masks are hexadecimal strings, since they outgrow the integers
of other JSON readers. What is in parentheses stands for a key that is left out. `load` checks names and types, and
nothing that needs two values to compare: that is the proof's part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from chunkdsl.plan.plan import FORMAT, Access, Act, Buffer, Lane, Plan, Region, Signal, Task


class PlanFormatError(ValueError):
    """The text is not a plan. `pointer` is a JSON pointer (RFC 6901) to what is wrong, "" for the whole text."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(f"{pointer or 'plan'}: {message}")
        self.message, self.pointer = message, pointer


def dump(plan: Plan) -> str:
    """The plan as JSON. `load` gives an equal plan."""
    head = {"format": FORMAT, "op": plan.op, "spec": plan.spec, "world": plan.world}
    parts = [f"{_json(k)}: {_json(v)}" for k, v in head.items()]
    tables = {
        "calls": [dict(c) for c in plan.calls],
        "buffers": [_fields(b, Buffer) for b in plan.buffers],
        "lanes": [_fields(lane, Lane) for lane in plan.lanes],
        "signals": [_fields(s, Signal) for s in plan.signals],
        "tasks": [_fields(t, Task) | _accesses(t) for t in plan.tasks],
    }
    for name, rows in tables.items():
        parts.append(f"{_json(name)}: [" + ",".join("\n" + _json(r) for r in rows) + ("\n]" if rows else "]"))
    return "{" + ",\n".join(parts) + "}\n"


def load(text: str) -> Plan:
    """The plan that `dump` wrote. PlanFormatError for anything else."""
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as e:
        raise PlanFormatError(f"not JSON: {e.msg} at line {e.lineno}, column {e.colno}") from None
    except PlanFormatError:
        raise
    except ValueError as e:  # an integer of thousands of digits
        raise PlanFormatError(f"not a plan: {e}") from None
    except RecursionError:
        raise PlanFormatError("not a plan: nested too deeply") from None
    if not isinstance(data, dict):
        raise PlanFormatError(f"wanted an object, found {_kind(data)}")
    version = data.get("format")
    if type(version) is not int:
        raise PlanFormatError('no version: wanted "format": 1' if version is None else "wanted an integer", "/format")
    if version != FORMAT:
        raise PlanFormatError(f"format {version} is unknown; this version reads format {FORMAT}", "/format")
    return Plan(**_read(data, _PLAN, "", skip=("format",)))


# ---- writing


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fields(value: Any, of: type) -> dict[str, Any]:
    """Simple fields in the order of the class, without those that have their default."""
    found = {}
    for name in of.__dataclass_fields__:
        item = getattr(value, name)
        if name != "accesses" and (name not in _DEFAULTS[of] or _DEFAULTS[of][name] != item):
            found[name] = item
    return found


def _accesses(task: Task) -> dict[str, Any]:
    return {"accesses": [_access_json(a) for a in task.accesses]} if task.accesses else {}


def _access_json(a: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"act": a.act.value, "region": _region_json(a.region)}
    if a.source is not None:
        found["source"] = _region_json(a.source)
    if a.what:
        found["what"] = a.what
    if a.mask != 1:
        found["mask"] = hex(a.mask)
    if a.origin != (0, 0):
        found["origin"] = list(a.origin)
    return found


def _region_json(r: Region) -> list[str | int]:
    return [r.buffer, r.rank, r.slot, r.row0, r.row1, r.col0, r.col1]


_DEFAULTS: dict[type, dict[str, Any]] = {
    Buffer: {"slots": 1},
    Lane: {"launch": "", "programs": 0, "behind": ""},
    Signal: {"label": ""},
    Task: {"after": (), "waits": (), "signals": (), "count": 1},
}

# ---- reading: a reader takes a value and its pointer


Reader = Callable[[Any, str], Any]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", int: "an integer"}
    return names.get(type(value), "null" if value is None else "a number with a fraction")


def _refuse_constant(name: str) -> None:
    raise PlanFormatError(f"not JSON: {name}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        raise PlanFormatError(f"key {twice!r} occurs twice in one object")
    return found


def _exact(of: type, words: str) -> Reader:
    def read(value: Any, at: str) -> Any:
        if type(value) is not of:  # a truth value is no integer
            raise PlanFormatError(f"wanted {words}, found {_kind(value)}", at)
        return value

    return read


_text = _exact(str, "a string")
_integer = _exact(int, "an integer")
_truth = _exact(bool, "true or false")
_list = _exact(list, "a list")
_object = _exact(dict, "an object")


def _many(item: Reader) -> Reader:
    return lambda value, at: tuple([item(v, f"{at}/{i}") for i, v in enumerate(_list(value, at))])


def _bindings(value: Any, at: str) -> tuple[tuple[str, int], ...]:
    return tuple((k, _integer(v, f"{at}/{_escape(k)}")) for k, v in _object(value, at).items())


def _region(value: Any, at: str) -> Region:
    if len(_list(value, at)) != 7:
        raise PlanFormatError("wanted [buffer, rank, slot, row0, row1, col0, col1]", at)
    return Region(_text(value[0], f"{at}/0"), *[_integer(v, f"{at}/{i}") for i, v in enumerate(value[1:], 1)])


def _act(value: Any, at: str) -> Act:
    try:
        return Act(_text(value, at))
    except ValueError:
        raise PlanFormatError(f"wanted one of {', '.join(a.value for a in Act)}, found {value!r}", at) from None


def _mask(value: Any, at: str) -> int:
    digits = _text(value, at)
    if not digits.startswith("0x") or not set(digits[2:]) <= set("0123456789abcdef") or not digits[2:]:
        raise PlanFormatError(f"wanted a hexadecimal string such as 0x1f, found {digits!r}", at)
    return int(digits, 16)


def _origin(value: Any, at: str) -> tuple[int, int]:
    if len(_list(value, at)) != 2:
        raise PlanFormatError("wanted [row, column]", at)
    return _integer(value[0], f"{at}/0"), _integer(value[1], f"{at}/1")


def _record(of: type, readers: dict[str, Reader]) -> Reader:
    return lambda value, at: of(**_read(_object(value, at), readers, at, optional=_OPTIONAL[of]))


def _read(data: dict[str, Any], readers: dict[str, Reader], at: str, skip=(), optional=frozenset()) -> dict[str, Any]:
    for key in data:
        if key not in readers and key not in skip:
            raise PlanFormatError(f"unknown key {key!r}; known are {', '.join(readers)}", f"{at}/{_escape(key)}")
    found = {}
    for key, reader in readers.items():
        if key in data:
            found[key] = reader(data[key], f"{at}/{key}")
        elif key not in optional:
            raise PlanFormatError(f"{key!r} is missing", at)
    return found


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


_OPTIONAL: dict[type, frozenset[str]] = {
    **{of: frozenset(defaults) for of, defaults in _DEFAULTS.items()},
    Task: frozenset((*_DEFAULTS[Task], "accesses")),
    Access: frozenset(("source", "what", "mask", "origin")),
}
_ACCESS = {"act": _act, "region": _region, "source": _region, "what": _text, "mask": _mask, "origin": _origin}
_TASK = {
    "name": _text, "rank": _integer, "lane": _text, "call": _integer, "kind": _text, "line": _integer,
    "accesses": _many(_record(Access, _ACCESS)), "after": _many(_integer), "waits": _many(_integer),
    "signals": _many(_integer), "count": _integer,
}  # fmt: skip
_SIGNAL = {
    "flags": _text, "owner": _integer, "index": _integer, "signaller": _integer, "call": _integer, "label": _text,
}  # fmt: skip
_BUFFER = {"name": _text, "kind": _text, "dtype": _text, "rows": _integer, "cols": _integer, "slots": _integer}
_LANE = {"name": _text, "serial": _truth, "launch": _text, "programs": _integer, "behind": _text}
_PLAN: dict[str, Reader] = {
    "op": _text,
    "spec": _text,
    "world": _integer,
    "calls": _many(_bindings),
    "buffers": _many(_record(Buffer, _BUFFER)),
    "lanes": _many(_record(Lane, _LANE)),
    "signals": _many(_record(Signal, _SIGNAL)),
    "tasks": _many(_record(Task, _TASK)),
}
