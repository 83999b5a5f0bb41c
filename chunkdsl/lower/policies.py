"""Policies: named ones, `with`, and what comes out for each collective and matmul. Reports bad keys and values, and
keys that fit nothing. Chooses nothing: a key left out, or `auto`, stays open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from chunkdsl.check import policies as rules
from chunkdsl.diagnostics import Label, Report
from chunkdsl.ir.policy import ChunkRows, FuseFrom, Policy
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.policy_values import AUTO, LATER_KEYS, PREDEFINED, READERS, Reader
from chunkdsl.lower.sizes import Dims
from chunkdsl.source import Span
from chunkdsl.syntax import nodes

REDUCTIONS = frozenset(("reduce_scatter", "all_reduce"))
COLLECTIVES = REDUCTIONS | {"all_gather", "all_to_all"}
MATMUL = frozenset(("matmul",))
APPLIES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("chunk", "route", "via", "side", "place", "order", "buffers"), COLLECTIVES),
    **dict.fromkeys(("reduce", "add", "wire"), REDUCTIONS),
    **dict.fromkeys(("algorithm", "validity", "assume", "retry"), frozenset(("all_reduce",))),
    **dict.fromkeys(("tile", "stages", "warps", "compute"), MATMUL),
    **dict.fromkeys(("fuse", "fuse_from", "eager_from", "fallback"), COLLECTIVES | MATMUL),
}
KEYS = tuple(f.name for f in fields(Policy) if f.name != "spans")
_NEAR_KEY = Nearest((*KEYS, *LATER_KEYS))


@dataclass(frozen=True)
class Setting:
    """A key's value where the spec wrote it; `AUTO` undoes a value of an outer policy. `use` is where it is applied.
    A `lenient` one, of a policy that comes with the language, may fit nothing."""

    value: object
    span: Span
    use: Span
    lenient: bool = False


Settings = dict[str, Setting]


@dataclass
class Scope:
    """What one `with` says, while the values in its statement or parenthesis are being made."""

    settings: Settings
    span: Span  # of the statement or parenthesis
    what: str
    fitted: set[str] = field(default_factory=set)
    moved: dict[str, None] = field(default_factory=dict)  # names of the dimensions that collectives here move
    dims: dict[str, None] = field(default_factory=dict)  # names of all dimensions of values here
    collectives: bool = False


class Policies:
    """The named policies of a file, and the settings of each `with`."""

    def __init__(self, names: Names, dims: Dims, report: Report) -> None:
        self._names, self._dims, self._report = names, dims, report
        self._reader = Reader(names, dims, report)
        self._named: dict[str, Settings | None] = {}
        self._near = names.nearest("policy", PREDEFINED)

    def declare_all(self) -> None:
        """Read each named policy, used or not, so that a bad value is reported once and at its place."""
        for name, item in self._names.policies.items():
            self._named[name] = self._read(item.pairs)

    def resolve(self, use: nodes.PolicyUse | None) -> Settings | None:
        """Settings of a `with`, its own pairs over those of its base; None if something in it was reported."""
        if use is None:
            return {}
        base: Settings | None = {}
        if use.base is not None:
            base = self._base(use.base)
        own = self._read(use.pairs)
        return None if base is None or own is None else {**base, **own}

    def policy_of(self, kind: str, moved: str | None, dims: Iterable[str | None], scopes: list[Scope]) -> Policy:
        """The policy of one value, innermost scope first, and a note in each scope of the keys that fitted.

        `moved` is the name of the dimension that a collective gathers or scatters; a chunk along another one is not
        for this collective.
        """
        values: dict[str, object] = {}
        spans: dict[str, Span] = {}
        for scope in reversed(scopes):
            scope.dims.update(dict.fromkeys(d for d in dims if d is not None))
            if kind in COLLECTIVES:
                scope.collectives = True
                scope.moved.update({moved: None} if moved else {})
            for key, setting in scope.settings.items():
                if kind not in APPLIES[key]:
                    continue
                if isinstance(setting.value, ChunkRows) and setting.value.dim != moved:
                    continue
                scope.fitted.add(key)
                if key not in values:
                    values[key], spans[key] = setting.value, setting.span
        given = {k: v for k, v in values.items() if v is not AUTO}
        return Policy(**given, spans={k: s for k, s in spans.items() if k in given})

    def close(self, scope: Scope) -> bool:
        """Report each key of a finished scope that fitted nothing; True if all did."""
        good = True
        for key, setting in scope.settings.items():
            labels = (Label(setting.use, "applied here"),) if setting.use != setting.span else ()
            value = setting.value
            if key not in scope.fitted and setting.lenient:
                continue
            if key not in scope.fitted:
                good = False
                if isinstance(value, ChunkRows) and scope.collectives:
                    self._report.add(rules.chunk_along_other_dim(value.dim, setting.span, tuple(scope.moved), labels))
                else:
                    needs = _needs(APPLIES[key])
                    self._report.add(rules.policy_key_fits_nothing(key, setting.span, needs, scope.what,
                                                                   labels or (Label(scope.span, scope.what),)))
            elif isinstance(value, FuseFrom) and value.dim is not None and value.dim not in scope.dims:
                good = False
                self._report.add(rules.gate_along_other_dim(value.dim, setting.span, tuple(scope.dims), labels))
        return good

    def _base(self, name: nodes.Name) -> Settings | None:
        if name.text in self._named:
            settings = self._named[name.text]
            return None if settings is None else {k: Setting(s.value, s.span, name.span) for k, s in settings.items()}
        if name.text in PREDEFINED:
            return {k: Setting(v, name.span, name.span, True) for k, v in PREDEFINED[name.text].items()}
        if name.text not in self._names.lost:
            self._report.add(rules.unknown_policy(name.text, name.span, self._near.of(name.text)))
        return None

    def _read(self, pairs: tuple[nodes.Pair, ...]) -> Settings | None:
        settings: Settings = {}
        first: dict[str, Span] = {}
        good = True
        for pair in pairs:
            key = pair.key.text
            if key in first:
                self._report.add(rules.policy_key_twice(key, pair.span, first[key]))
                good = False
                continue
            first[key] = pair.span
            if key in LATER_KEYS:
                self._reader.refuse_key(pair)
                good = False
            elif key not in READERS:
                self._report.add(rules.unknown_policy_key(key, pair.key.span, _NEAR_KEY.of(key), KEYS))
                good = False
            else:
                value = self._reader.read(pair)
                if value is None:
                    good = False
                else:
                    settings[key] = Setting(value, pair.span, pair.span)
        return settings if good else None


def _needs(kinds: frozenset[str]) -> str:
    if kinds == COLLECTIVES | MATMUL:
        return "collective and no matmul"
    return "collective" if kinds == COLLECTIVES else " or ".join(sorted(kinds, reverse=True))
