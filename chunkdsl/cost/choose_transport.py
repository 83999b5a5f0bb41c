"""What `auto` becomes for a collective: route, via, place, chunk and buffers, whatever its route is; of a reduction
behind a product then `algorithm` and `add`.

Each value that is not the simplest must earn it: a time counts (1 + gain) times as much for every key that differs
(`gain` of data/choices.toml), and the least such time is taken. Tried are

1. all groups (route, via, kind of place) with the simplest number of programs and chunk;
   (routes of two tiers also with a number of chunks, which weaves the tiers);
2. of the best GROUPS of them, unless one is far behind: every number of programs, with the best of these every chunk;
3. with the best of all: every number of buffers;
4. with all of that the forms of forms.py, where it has any. Each that is faster at all takes the place of the rules',
   since predictions had the order right wherever it was measured; and another that is clearly faster that of the first.

A spec that writes a key restricts what may be taken and nothing else: groups are ranked, programs and buffers tried as
if it had not, so that the values which were chosen may be written down one by one and the others stay. A value that is
not among those tried holds throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from chunkdsl.cost.constants import margin
from chunkdsl.cost.forms import FORM_KEYS, Form, by_warps, forms_of
from chunkdsl.cost.transports import (
    BUFFERS,
    WOVEN,
    Group,
    Values,
    chunks_like,
    groups_of,
    moved,
    programs_of,
    simplest,
    text_of,
    up_for_choice,
    weaves,
    written_in,
)
from chunkdsl.cost.trials import Trials, without
from chunkdsl.ir.graph import Value
from chunkdsl.ir.policy import ChunkCount, Policy
from chunkdsl.plan.settled import Settled, Settlement

KEYS = ("route", "via", "place", "chunk", "buffers")
GROUPS = 2
FAR = 1.5  # a group that takes so much longer than the best one is not looked at further


class TransportTrials(Trials):
    """The trials of the collectives of one op."""

    def settle(self) -> Settlement:
        """What is known of every collective; empty where values that are good for each are not legal together."""
        found = Settlement()
        for v in self.collectives:
            if any((v, key) in self.rules for key in KEYS):
                found.update(_Search(self, v).settle())
        return found if self.schedule(found, {}) is not None else Settlement()

    def tried(self, v: Value) -> list[tuple[float, dict[str, object]]]:
        """(predicted time, values of the keys that the spec leaves open) of all that is tried and legal, fastest first;
        a key that is missing is as the rules have it."""
        return _Search(self, v).open_values() if any((v, key) in self.rules for key in KEYS) else []

    def bare(self, v: Value) -> Policy:
        keys = list(up_for_choice(v.policy, self._groups(v), programs_of(self.machine.link)))
        if v.policy.chunk in (*self.chunks(v), *self.woven(v)):
            keys.append("chunk")
        if v.policy.buffers in BUFFERS:
            keys.append("buffers")
        return without(v.policy, *keys, *(FORM_KEYS if self.forms(v) else ()))

    def forms(self, v: Value) -> tuple[Form, ...]:
        return forms_of(v.kind, self.world, self.machine)

    def chunks(self, v: Value) -> list:
        """The chunks that are tried, those of the rules first."""
        rules: dict = {}
        self.schedule({}, {v: without(v.policy, "chunk")}, rules)
        routing = self.program.plans.get(v.policy.route or "")
        grid = self.made.world if self.by_rule.nested else self.world
        rule = rules.get((v, "chunk"), (None,))[0]
        return chunks_like(rule, routing.parts(grid) if isinstance(rule, ChunkCount) and routing else 1)

    def woven(self, v: Value) -> tuple[ChunkCount, ...]:
        """The numbers of chunks that are tried as well, where routes of two tiers are."""
        return WOVEN if v.kind == "all_gather" and any(map(weaves, self._groups(v))) else ()

    def _groups(self, v: Value) -> tuple[Group, ...]:
        return groups_of(v, self.op, self.by_rule.nested, self.machine.link)

    def ranked(self, v: Value) -> tuple[Group, ...]:
        """The groups that are held against each other, with what the policy says beside them."""
        return self.written(v, self._groups(v), self.policies.get(v, v.policy))

    def written(self, v: Value, groups: tuple[Group, ...], policy: Policy) -> tuple[Group, ...]:
        """The groups with what a policy says. A plan goes by copy engine only if the spec says so, or the rules."""
        by_rule = self.rules.get((v, "via"), ("ldst",))[0]
        if policy.route in self.program.plans and policy.via is None and by_rule != "copy_engine":
            policy = replace(policy, via="ldst")
        return tuple(dict.fromkeys(written_in(g, policy) for g in groups))


class _Search:
    """Of one collective. `allowed`: whether the spec leaves room for some values. `held`: with the form that the spec
    writes from the start, as it goes with none of the transports that are best for that of the rules."""

    def __init__(self, trials: TransportTrials, v: Value, held: bool = False) -> None:
        self.trials, self.v = trials, v
        self.policy = trials.bare(v)
        if held:
            self.policy = replace(self.policy, algorithm=v.policy.algorithm, add=v.policy.add)
        self.forms = () if held else tuple(f for f in trials.forms(v) if _goes_with(f, v.policy))
        self.ruled = bool(self.forms) and self.forms[0] == trials.forms(v)[0]
        self.kind = v.policy.place.kind if v.policy.place else None
        self.writes = {key: given for key in KEYS if (given := getattr(v.policy, key)) is not None}
        if v.policy.place and not v.policy.place.counted:  # the number is open
            del self.writes["place"]
        self.ranked = trials.ranked(v)
        self.chunks = trials.chunks(v) if self.policy.chunk is None else [None]
        self.woven = trials.woven(v) if self.policy.chunk is None else ()
        numbers = programs_of(trials.machine.link)
        own = (0,) if self.policy.place else numbers
        self.programs = (self.policy.place.programs,) if self.policy.place else own
        rule = trials.rules.get((v, "buffers"), (None,))[0]
        self.simple, self.fills = simplest(v, trials.op, self.chunks[0], rule, trials.machine.link), numbers[0]
        self.tried: list[tuple[float, Values]] = []
        self.form: Form = self.forms[0] if self.forms else ()
        self.instead: _Search | None = None
        self.factor = 1 + margin("gain")

    def settle(self) -> Iterator[tuple[tuple[Value, str], Settled]]:
        """((collective, key), what is known of it) for every key that the spec leaves open."""
        best = self._best(values for group in self._groups() for values in self._of_group(group))
        if best is None:
            return
        found = [(key, best) for key in KEYS[:-1]]
        if best.group.via != "copy_engine" and "buffers" not in self.writes:
            best = self._best(replace(best, buffers=n) for n in BUFFERS)
            found.append(("buffers", best))
        ends = {f: us for f in self.forms if (us := self._time_of(best, f)) is not None}
        if self.forms and not ends:
            self.instead = _Search(self.trials, self.v, held=True)
            yield from self.instead.settle()
            return
        by_rule = self.trials.time(self.v, {}, self.v.policy)
        for key, values in found:
            if key not in self.writes and (told := self._settled(key, values, by_rule)):
                yield (self.v, key), told
        if ends:
            self.form = self._form(best, ends)
            yield from self._settled_form(ends)

    def open_values(self) -> list[tuple[float, dict[str, object]]]:
        list(self.settle())  # which tries them
        if self.instead:
            return self.instead.open_values()
        tried = [(us, x, self._open_form(x)) for us, x in self.tried if self._allowed(x)]
        found = sorted(((self._time_of(x, form) if form else us, x, form) for us, x, form in tried), key=lambda t: t[0])
        return [(us, {key: x.of(key) for key in KEYS if key not in self.writes and x.of(key) is not None} | dict(form))
                for us, x, form in found]  # fmt: skip

    def _open_form(self, values: Values) -> Form:
        """What the form that was chosen, if it is legal with these values, says of keys that the spec leaves open."""
        if self.ruled and self.form != self.forms[0] and self._time_of(values, self.form) is not None:
            return tuple((k, x) for (k, x), rule in zip(self.form, self.forms[0], strict=True) if (k, x) != rule)
        return ()

    def _form(self, values: Values, ends: dict[Form, float]) -> Form:
        """The one to take: of those that are faster than the rules' the first, or a later one that is so clearly."""
        first = next(iter(ends))
        best, least = first, ends[first] / (1 + margin("form")) if self.ruled else ends[first]
        for form, us in ends.items():
            if form != first and us < least and self._by_warps(values, form):
                best, least = form, us / self.factor
        return best

    def _settled_form(self, ends: dict[Form, float]) -> Iterator[tuple[tuple[Value, str], Settled]]:
        mine, us = dict(self.form), ends[self.form]
        for key, value in mine.items():
            told = getattr(self.v.policy, key) is None and (key == "algorithm" or mine.get("algorithm") != "one_shot")
            others = [(t, dict(form)[key]) for form, t in ends.items() if dict(form)[key] != value]
            if not told or not others:
                continue
            other, text = min(others)
            rule = value == dict(self.forms[0])[key] and self.ruled
            why = "" if rule else self.trials.gain(us, ends[self.forms[0]])
            yield (self.v, key), Settled(None if rule else value, value, why, text, other / us - 1)

    def _by_warps(self, values: Values, form: Form) -> bool:
        found = {(self.v, key): Settled(value, "", "") for key, value in values.settled().items() if value is not None}
        made = self.trials.schedule(found, self.trials.policies | {self.v: replace(self.policy, **dict(form))})
        return made is not None and by_warps(made, self.trials.world, self.trials.dims, self.trials.machine)

    def _groups(self) -> list[Group]:
        """Those of step 2 that the spec leaves room for, or the best one that it does."""
        mine = list(self.trials.written(self.v, self.ranked, self.v.policy))
        if len(mine) == 1:
            return mine
        values = {g: self._first(g) for g in (*self.ranked, *mine)}
        cost = {g: c for g, x in values.items() if (c := self._rank(x)) is not None}
        order = sorted((g for g in self.ranked if g in cost), key=cost.__getitem__)[:GROUPS]
        order = [g for g in order if cost[g] <= FAR * cost[order[0]]]
        return [g for g in order if g in mine] or sorted((g for g in mine if g in cost), key=cost.__getitem__)[:1]

    def _first(self, group: Group) -> Values:
        return Values(group, self.programs[0] if group.kind == "own_sms" else 0, self.chunks[0])

    def _rank(self, values: Values) -> float | None:
        """What a group is worth before its chunks are tried: where these weave its tiers, the better of both forms."""
        forms = [values, *(replace(values, chunk=c) for c in self.woven[:1] if weaves(values.group))]
        return min((c for x in forms if (c := self._cost(x)) is not None), default=None)

    def _of_group(self, group: Group) -> Iterator[Values]:
        """Every number of programs, and with the best that the spec leaves room for every chunk."""
        first = self._first(group)
        written = self.writes.get("place")
        counts = (written.programs,) if written else self.programs if group.kind == "own_sms" else (0,)
        tried = [replace(first, programs=n) for n in counts]
        best = self._best(tried, allowed=False)
        if best is not None:
            yield from (*tried, *(replace(best, chunk=c) for c in (*self.chunks[1:], *self.woven)))

    def _best(self, values: Iterable[Values], allowed: bool = True) -> Values | None:
        found = [(c, i, x) for i, x in enumerate(values) if (not allowed or self._allowed(x))
                 and (c := self._cost(x)) is not None]  # fmt: skip
        return min(found, key=lambda t: t[:2])[2] if found else None

    def _allowed(self, values: Values) -> bool:
        written = all(values.of(key) in (None, given) for key, given in self.writes.items())
        return written and values.group.kind in (self.kind or values.group.kind, "")

    def _cost(self, values: Values) -> float | None:
        us = self._time(values)
        return None if us is None else us * self.factor ** moved(values, self.simple, self.fills)

    def _time_of(self, values: Values, form: Form) -> float | None:
        """As if the spec wrote the form: None where that is refused."""
        return self.trials.time(self.v, values.settled(), replace(self.policy, **dict(form)))

    def _time(self, values: Values) -> float | None:
        us = self.trials.time(self.v, values.settled(), self.policy)
        if us is not None and (us, values) not in self.tried:
            self.tried.append((us, values))
        return us

    def _settled(self, key: str, best: Values, by_rule: float | None) -> Settled | None:
        """None if nothing was held against it."""
        us = self._time(best)
        mine, said = best.of(key), self.trials.said.get((self.v, key))
        if mine is None:  # the rules' value, or the key does not apply
            if said is None:
                return None
            mine, shown, value = said[0], said[1].value, None
        else:
            shown, value = text_of(mine), None if said and said[0] == mine else mine
        others = [(t, text_of(x.of(key))) for t, x in self.tried
                  if self._allowed(x) and x.of(key) is not None and text_of(x.of(key)) != text_of(mine)]  # fmt: skip
        if not others and value is None:
            return None
        other, text = min(others, default=(us, ""))
        why = self.trials.gain(us, by_rule) if value is not None and by_rule else ""
        return Settled(value, shown, why, text, other / us - 1)


def _goes_with(form: Form, policy: Policy) -> bool:
    return all(getattr(policy, key) in (None, value) for key, value in form)
