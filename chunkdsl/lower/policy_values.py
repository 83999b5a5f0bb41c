"""Values of policy keys: of the right kind, within range, built. One reader for each key; what fits where is decided
in `policies.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from chunkdsl.check import policies as rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Report
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows, FuseFrom, Place
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.sizes import Dims
from chunkdsl.lower.tensors import BUILT_DTYPES, DTYPES
from chunkdsl.plan.hierarchical import TIERS
from chunkdsl.syntax import nodes


class Auto:
    """The value `auto`: leave the choice to the compiler, whatever an outer policy says."""


AUTO = Auto()

LATER_KEYS = {
    "keep": "leave it out: a gathered value is held whole",
}

PREDEFINED: dict[str, dict[str, object]] = {
    "overlap": {"fuse_from": FuseFrom(0)},
    "decode": {"algorithm": "one_shot", "validity": "word"},
    "unfused": {"fuse_from": FuseFrom(None)},
}

BUILT = {
    "compute": ("generated", "library"),
    "route": ("direct", "swizzle", "ring"),
    "via": ("copy_engine", "tma", "ldst", "multimem"),
    "side": ("push", "pull"),
    "order": ("arrival", "local_first", "interleaved"),
    "reduce": ("fixed", "rank_order"),
    "add": ("behind", "in_tiles"),
    "algorithm": ("one_shot", "two_shot"),
    "fuse": ("required",),
    "fallback": ("nccl", "exact", "none"),
    "validity": ("flag", "word", "speculative"),
    "assume": ("run_to_completion",),
}
LATER = {
    ("order", "given"): "write order = arrival or order = local_first",
    ("reduce", "any_order"): "write reduce = fixed or reduce = rank_order",
}


class Reader:
    """Reads the value of one pair."""

    def __init__(self, names: Names, dims: Dims, report: Report) -> None:
        self._names, self._dims, self._report = names, dims, report
        self._plans = names.nearest("plan", BUILT["route"])

    def read(self, pair: nodes.Pair) -> object | None:
        """The typed value, `AUTO`, or None if it was reported (or names something whose declaration was)."""
        if isinstance(pair.value, nodes.Choice) and pair.value.name == "auto" and not pair.value.args:
            return AUTO
        return READERS[pair.key.text](self, pair.key.text, pair.value)

    def refuse_key(self, pair: nodes.Pair) -> None:
        self._report.add(not_built_yet(f"the policy key `{pair.key.text}`", pair.span, LATER_KEYS[pair.key.text]))

    def _choice(self, key: str, value: nodes.PolicyValue) -> object | None:
        word = value.name if isinstance(value, nodes.Choice) else None
        if (key, word) in LATER:
            return self._later(key, value, LATER[key, word])
        if word in BUILT[key] and not value.args:
            return word
        if key == "route" and word is not None and not value.args:
            if self._names.kind_of(word) == "plan":
                return word
            if word in self._names.lost:
                return None
            near = self._plans.of(word)
        else:
            near = Nearest(BUILT[key]).of(word) if word is not None else ()
        return self._wrong(key, value, f"one of {', '.join(('auto', *BUILT[key]))}", near)

    def _route(self, key: str, value: nodes.PolicyValue) -> object | None:
        if not isinstance(value, nodes.Choice) or value.name != "hierarchical":
            return self._choice(key, value)
        if len(value.args) == 2 and set(value.args) <= set(TIERS):
            return f"hierarchical({', '.join(value.args)})"
        near = Nearest(TIERS).of(str(value.args[0])) if value.args else ()
        return self._wrong(key, value, f"hierarchical(outer, inner), each one of {', '.join(TIERS)}", near)

    def _chunk(self, key: str, value: nodes.PolicyValue) -> object | None:
        match value:
            case nodes.Bytes(count=count):
                chunk: object = ChunkBytes(count)
            case nodes.Rows(count=count, dim=dim):
                if not self._dims.is_dim(dim.text, dim.span):
                    return None
                chunk = ChunkRows(count, dim.text)
            case nodes.Count(count=count, unit=unit) if unit.text == "shard":
                chunk = ChunkCount(count)
            case _:
                return self._wrong(key, value, "a size: `4 MiB`, `512 along M` or `8 per shard`")
        return chunk if count > 0 else self._out_of_range(key, value, "more than 0")

    def _tile(self, key: str, value: nodes.PolicyValue) -> object | None:
        if not isinstance(value, nodes.Tile) or len(value.dims) != 3:
            return self._wrong(key, value, "three sizes, rows x columns x depth: `128x256x64`")
        if all(n >= 16 and n & (n - 1) == 0 for n in value.dims):
            return value.dims
        return self._out_of_range(key, value, "powers of two, 16 or more")

    def _place(self, key: str, value: nodes.PolicyValue) -> object | None:
        match value:
            case nodes.Choice(name="co_located", args=()):
                return Place("co_located")
            case nodes.Choice(name="own_sms", args=("auto",)):
                return Place("own_sms")
            case nodes.Choice(name="own_sms", args=(int(count),)):
                return Place("own_sms", count) if count >= 1 else self._out_of_range(key, value, "at least one SM")
        near = Nearest(("own_sms", "co_located")).of(value.name) if isinstance(value, nodes.Choice) else ()
        return self._wrong(key, value, "`own_sms(n)`, `own_sms(auto)` or `co_located`", near)

    def _fuse_from(self, key: str, value: nodes.PolicyValue) -> object | None:
        match value:
            case nodes.Rows(count=count, dim=dim):
                return FuseFrom(count, dim.text) if self._dims.is_dim(dim.text, dim.span) else None
            case nodes.Choice(name="always", args=()):
                return FuseFrom(0)
            case nodes.Choice(name="never", args=()):
                return FuseFrom(None)
        return self._wrong(key, value, "`1024 along M`, `always` or `never`")

    def _wire(self, key: str, value: nodes.PolicyValue) -> object | None:
        word = value.name if isinstance(value, nodes.Choice) and not value.args else None
        if word not in DTYPES or not DTYPES[word].floating:
            return self._wrong(key, value, f"a dtype: {', '.join(d.value for d in BUILT_DTYPES)}")
        if DTYPES[word] not in BUILT_DTYPES:
            return self._later(key, value, "write wire = bf16")
        return word

    def _later(self, key: str, value: nodes.PolicyValue, instead: str) -> None:
        text = value.name if isinstance(value, nodes.Choice) else value.value
        self._report.add(not_built_yet(f"`{key} = {text}`", value.span, instead))

    def _wrong(self, key: str, value: nodes.PolicyValue, wanted: str, near: tuple[str, ...] = ()) -> None:
        self._report.add(rules.policy_value_of_wrong_kind(key, value.span, wanted, near))

    def _out_of_range(self, key: str, value: nodes.PolicyValue, wanted: str) -> None:
        self._report.add(rules.policy_value_out_of_range(key, value.span, wanted))


def _integers(allowed: tuple[int, ...], text: str) -> Callable:
    def read(reader: Reader, key: str, value: nodes.PolicyValue) -> object | None:
        if not isinstance(value, nodes.Number) or not isinstance(value.value, int):
            return reader._wrong(key, value, f"an integer: {text}")
        return value.value if value.value in allowed else reader._out_of_range(key, value, text)

    return read


READERS: dict[str, Callable[[Reader, str, nodes.PolicyValue], object | None]] = {
    **dict.fromkeys(BUILT, Reader._choice),
    "chunk": Reader._chunk,
    "route": Reader._route,
    "tile": Reader._tile,
    "stages": _integers(tuple(range(1, 9)), "1 to 8"),
    "warps": _integers((1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
    "place": Reader._place,
    "buffers": _integers((1, 2, 3), "1, 2 or 3"),
    "retry": _integers(tuple(range(1, 1025)), "1 to 1024"),
    "wire": Reader._wire,
    "fuse_from": Reader._fuse_from,
    "eager_from": Reader._fuse_from,
}
