"""An op that is a small all-reduce with its epilogue -> one exchange. What is not one is left to `fuse`.

Small means: around one `all_reduce` of a parameter, everything else pointwise or `rms_norm` over matrices of the same
shape, with no transport of its own. Chosen here: the forms in which words travel, by payload, and the sizes of blocks.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check import exchanges as rules
from chunkdsl.check.targets import transport_not_legal
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.types import DimRef, evaluate
from chunkdsl.lower.choices import Choices
from chunkdsl.lower.crossovers import crossover
from chunkdsl.lower.epilogue import Epilogue
from chunkdsl.lower.facts import POINTWISE, REDUCTIONS, Refused
from chunkdsl.lower.gates import settle_gate, values_of
from chunkdsl.lower.switched import VECTOR, after_rounding, unswitched
from chunkdsl.plan.exchange import Exchange, Form, Store
from chunkdsl.plan.schedule import Instruction, Operand, OpSchedule, Parameter, Result

TRANSPORT = ("chunk", "route", "side", "place", "order", "add")
KEYS = ("validity", "assume", "retry")
# Measured on two H200s (crossovers.toml). Data and epoch in 64 bits need nothing emptied, marks half the bytes; 16
# bytes at once need fewer threads, which pays where every thread would wait for several words.
MARKS = (Form("mark", crossover("wide_mark") // 4, 3, 1), Form("mark", 0, 3, 4))
FORMS = (Form("word", crossover("mark") // 4, 2, 1), *MARKS)
TWO_BUFFERS = (Form("word", crossover("wide_word") // 4, 2, 1), Form("word", 0, 2, 2))
BLOCKS = ((128, 4), (256, 8), (512, 16), (1024, 32))  # one word for a thread: with more, waiting takes twice as long
MULTIMEM = {
    "validity": "the switch adds whatever it finds, so a flag must say what is there",
    "buffers": "the second buffer is what allows a call to end without a barrier",
}
SWITCHED = (Form("flag", 0, 2, 4, ((512, 4),)),)  # 128 threads of 16 bytes
# Words of a block that holds a row; with 4 for a thread, which then has 128 registers, 16 ranks' words and the epilogue
# fit, and so do operands that are asked for before it waits.
LEAST_WORDS, MOST_WORDS, MOST_THREADS = 128, 2048, 512
LEAST_SPAN, MOST_SPAN = 512, 1024  # in two rounds, which cut it into a piece of 16 bytes and more for every rank
REGISTERS, MOST_REGISTERS = 65536, 255  # of a multiprocessor, of a thread


def find_exchange(op: Op, program: Program) -> Value | None:
    """The all-reduce that the op is about; None if the op is not a small all-reduce."""
    values = values_of(op)
    if len(program.mesh.axes) != 1:
        return None
    reductions = [v for v in values if v.kind in REDUCTIONS]
    if len(reductions) != 1 or reductions[0].kind != "all_reduce" or reductions[0].args[0].kind != "param":
        return None
    found, policy = reductions[0], reductions[0].policy
    simple = POINTWISE | {"param", "all_reduce", "rms_norm"}
    if any(v.kind not in simple for v in values) or has_transport(found):
        return None
    asked = policy.algorithm or policy.via == "multimem" or any(getattr(policy, k) for k in KEYS) or policy.buffers == 3
    return found if asked or op.updates or any(v.kind == "rms_norm" for v in values) else None


def has_transport(reduction: Value) -> bool:
    policy = reduction.policy
    return policy.via == "tma" or any(getattr(policy, k) is not None for k in TRANSPORT)


def refuse_outside(op: Op, program: Program, report: Report) -> bool:
    """What only an exchange has, in an op that is none. True if there was any."""
    found = []
    for v in values_of(op):
        keys = [k for k in KEYS if getattr(v.policy, k) is not None]
        if v.policy.via == "multimem" and not keys:
            why, legal = "the switch adds up nothing but the payload of a small all-reduce", "write via = ldst"
            found.append(transport_not_legal(v.kind, "via = multimem", why, legal, v.policy.spans["via"]))
        for key in keys[:1]:
            span = v.policy.spans[key]
            why = "it has a transport of its own" if v.args[0].kind == "param" else "its operand is no parameter"
            why = f"it is {v.kind}" if v.kind != "all_reduce" else why
            why = "the mesh has two axes" if len(program.mesh.axes) > 1 else why
            found.append(rules.validity_without_exchange(key, why, span))
    for p in op.params:
        if p.inout:
            instead = "return the new value as a result"
            found.append(not_built_yet("`inout` outside a small all-reduce", p.span, instead))
    report.extend(found)
    return bool(found)


class ExchangeBuilder(Epilogue):
    def build(self, reduction: Value) -> OpSchedule | None:
        gate = settle_gate(self.op, self.program, self.report, self.choices, self.settled)
        try:
            for p in self.op.params:
                self._dtype(p.value)
                self.places[p.value] = (p.name, "plain")
                self.names[p.value] = p.name
            exchange = self._exchange(reduction)
        except Refused:
            return None
        if gate is None or exchange is None:
            return None
        slots = exchange.forms[0].slots
        parameters = tuple(Parameter(p.name, *self._declared(p.value)) for p in self.op.params)
        results = tuple(Result(name, *self._declared(value)) for name, value in self.op.results)
        return OpSchedule(
            name=self.op.name,
            line=self._line(self.op.span),
            parameters=parameters,
            results=results,
            buffers=(),
            flags=(),
            counters=(),
            launches=(),
            slots=slots,
            closing=slots == 1,
            pad=1,
            gate=gate,
            choices=tuple(self.choices),
            exchange=exchange,
            updates=tuple(name for name, _ in self.op.updates),
        )

    def _exchange(self, reduction: Value) -> Exchange | None:
        payload = reduction.args[0]
        rows, cols, dtype = self._rows(payload), self._cols(payload), self._dtype(payload)
        narrow = self._narrow(payload)
        epilogue, stores, operands = self._statements(reduction)
        rowwise = any(step.op == "rms_norm" for step in epilogue)
        name = f"{self.op.name}_exchange"
        while name in self.kernels:
            name += "_"
        self.kernels.add(name)
        settle = Choices(reduction, f"{self.op.name}: all_reduce", self.report, self.choices, self.settled)
        via = settle.policy.via or "ldst"
        forms_of = self._multimem if via == "multimem" else self._forms
        algorithm, validity, forms = forms_of(settle, dtype, rowwise)
        if via == "multimem":
            longest = self._row_words(cols, dtype) // VECTOR
            for what, why in unswitched(dtype, narrow, longest if rowwise else 0, epilogue, operands, stores):
                self._illegal(settle, f"via = multimem and {what}", why,
                              "give what follows an op of its own, or leave `via` out", "via")
            epilogue = after_rounding(epilogue, dtype)
        if not settle.ok:
            return None
        if via == "multimem":
            self.report.add(rules.switch_adds_in_its_own_order(dtype, algorithm, settle.span("via")))
        statement = next(s for s in self.op.statements if reduction in _below(s.value, set()))
        text = f"{statement.target} = {' '.join(self.program.source.slice(statement.value.span).split())}"
        two = algorithm == "two_shot"
        forms = _single(forms) if narrow else forms
        if via != "multimem" or rowwise:
            forms = tuple(self._cut(f, cols, dtype, rowwise, two) for f in forms)
        return Exchange(
            name=name,
            line=self._line(statement.span),
            text=text if len(text) <= 100 else f"{text[:97]}...",
            payload=self.names[payload],
            dtype=dtype,
            rows=rows,
            cols=cols,
            algorithm=algorithm,
            validity=validity,
            retry=settle.policy.retry or 8,
            assume=settle.policy.assume or "",
            rowwise=rowwise,
            long_rows=rowwise and (two or self._row_words(cols, dtype) > MOST_WORDS),
            forms=forms,
            operands=operands,
            epilogue=epilogue,
            stores=stores,
            limit=crossover("library") if algorithm == "one_shot" else 0,
            via=via,
            vectors=longest if rowwise and via == "multimem" else 0,
        )

    def _forms(self, settle: Choices, dtype: str, rowwise: bool) -> tuple[str, str, tuple[Form, ...]]:
        policy = settle.policy
        algorithm = settle.pick("algorithm", "one_shot", "one trip; a small payload may travel to every rank")
        validity = settle.pick("validity", "word", "data and validity in one atomic word: one trip, no fence")
        if policy.wire not in (None, dtype):
            self._illegal(settle, f"wire = {policy.wire}", "words carry the payload as it is", f"write wire = {dtype}",
                          "wire")
        if algorithm == "two_shot" and validity == "speculative":
            what, why = "algorithm = two_shot and speculation", "its second round sends what the first has read"
            self._illegal(settle, what, why, "write algorithm = one_shot", "validity")
        if validity != "speculative":
            for key in ("assume", "retry"):
                if getattr(policy, key) is not None:
                    settle.refuse(rules.assumption_unused(key, validity, settle.span(key)))
        elif policy.assume is None:
            settle.refuse(rules.speculation_not_assumed(settle.span("validity")))
        buffers = policy.buffers
        if validity == "word":
            if buffers is None:
                above = f"2, 3 where more than {crossover('mark') >> 10} KiB are sent"
                buffers = settle.pick("buffers", None, "no closing barrier", "3" if rowwise else above)
            if buffers is None:
                return algorithm, validity, MARKS[1:] if rowwise else FORMS
            if buffers == 1:
                return algorithm, validity, (Form("word", 0, 1, 2 if rowwise else 1),)
            return algorithm, validity, (TWO_BUFFERS if buffers == 2 else MARKS)[rowwise:]
        if buffers == 3:
            self._illegal(settle, f"validity = {validity} with three buffers", "flags need two at most",
                          "write buffers = 2, or validity = word", "buffers")
        slots = settle.pick("buffers", 2, "a second buffer is cheaper than a barrier")
        return algorithm, validity, (Form(validity, 0, slots),)

    def _multimem(self, settle: Choices, dtype: str, rowwise: bool) -> tuple[str, str, tuple[Form, ...]]:
        """The one form that the switch serves: it knows no epoch and no empty mark, so flags say what is there."""
        policy = settle.policy
        why = "every rank has the switch add the whole payload: one trip less than a piece each, stored at all"
        algorithm = settle.pick("algorithm", "one_shot", why)
        validity = settle.pick("validity", "flag", "the switch adds whatever it finds: only a flag says what is there")
        slots = settle.pick("buffers", 2, "a second buffer is cheaper than a barrier")
        for key, found, legal in (("validity", validity, "flag"), ("buffers", slots, 2)):
            if found != legal:
                what = f"via = multimem and {key} = {found}"
                self._illegal(settle, what, MULTIMEM[key], f"write {key} = {legal}", key)
        if policy.wire not in (None, dtype):
            what = f"wire = {policy.wire}"
            self._illegal(settle, what, "the switch adds the payload as it is", f"write wire = {dtype}", "wire")
        if policy.reduce == "rank_order":
            self._illegal(settle, "via = multimem and reduce = rank_order", "the switch adds in an order of its own",
                          "leave one of them out", "reduce")
        for key in ("assume", "retry"):
            if getattr(policy, key) is not None:
                settle.refuse(rules.assumption_unused(key, validity, settle.span(key)))
        return algorithm, validity, SWITCHED

    def _narrow(self, payload: Value) -> bool:
        """Whether rows may be no multiples of 16 bytes, so that every thread takes one word at a time. Refuses those
        that are known only in a call and may end within a word."""
        size, item = payload.type.shape[-1], payload.type.dtype.bytes
        known = size if isinstance(size, int) else 1
        if isinstance(size, DimRef):
            known = self.program.ranges[size.name].step
        if not isinstance(size, int) and known * item % 4:
            self._refuse("rows of a run-time length that may be odd", "promise `step 2`", payload.span)
        return known * item % 16 > 0

    def _illegal(self, settle: Choices, what: str, why: str, instead: str, key: str) -> None:
        settle.refuse(rules.exchange_not_legal(what, why, instead, settle.span(key)))

    def _cut(self, form: Form, cols, dtype: str, rowwise: bool, two: bool) -> Form:
        """The form with its blocks: as many threads for the words that each takes at once; a row is one block, or
        several of one size. Marks of short rows need half of the registers; the compiler would rather spill others to
        that half than let a multiprocessor have one program, which is all that there is for it."""
        if not rowwise:
            blocks = BLOCKS[:-1] if two else BLOCKS  # of two rounds 1,024 threads would spill
            return replace(form, blocks=tuple((words * form.wide, warps) for words, warps in blocks))
        words = self._row_words(cols, dtype)
        least, most = (LEAST_SPAN, MOST_SPAN) if two else (LEAST_WORDS, MOST_WORDS)
        block = min(most, max(least, 1 << (words - 1).bit_length()))
        warps = max(4, min(MOST_THREADS >> two, block // max(2, form.wide)) // 32)
        half = form.name == "mark" and words <= MOST_WORDS and not two
        registers = 0 if half else min(MOST_REGISTERS, REGISTERS // (32 * warps))
        return replace(form, blocks=((block, warps),), registers=registers)

    def _row_words(self, cols, dtype: str) -> int:
        """32-bit words of the longest row that the bounds allow."""
        return -(-evaluate(cols.size, self.highs) * (4 if dtype == "f32" else 2) // 4)

    def _statements(self, reduction: Value):
        """The epilogue of all statements, one after the other; what each leaves is rounded, as a stored value is."""
        made: dict[Value, str] = {reduction: "total"}
        operands: dict[Value, Operand] = {}
        steps: list[Instruction] = []
        for s in self.op.statements:
            self.target = s.target
            self._same_shape(s.value, reduction)
            target = self._norm(s.value, made, operands, steps)
            if isinstance(target, str):
                rounded = f"t{len(made) + len(steps)}r"
                steps.append(Instruction(rounded, "round", (target, self._dtype(s.value))))
                target = rounded
            made[s.value] = target
        for name, value in (*self.op.results, *self.op.updates):
            if value not in made or value.kind == "param":
                self._refuse(f"`{name}` as another name of a parameter", "give it a value of its own", value.span)
        stores = [Store(str(made[v]), n, self._dtype(v)) for n, v in (*self.op.results, *self.op.updates)]
        return tuple(steps), tuple(stores), tuple({o.name: o for o in operands.values()}.values())

    def _norm(self, value: Value, made: dict, operands: dict, steps: list):
        """A pointwise tree whose leaves may be `rms_norm`s: those first, each as one instruction."""
        for v in _below(value, set(made)):
            if v.kind == "rms_norm" and v not in made:
                self._same_shape(v, value)
                x = self._norm(v.args[0], made, operands, steps)
                g = self._epilogue(v.args[1], made, operands, steps)
                target = f"t{len(made) + len(steps)}n"
                steps.append(Instruction(target, "rms_norm", (x, g, float(v.attrs["eps"]))))
                made[v] = target
        return self._epilogue(value, made, operands, steps)

    def _same_shape(self, value: Value, reduction: Value) -> None:
        if value.type.shape != reduction.type.shape or value.type.placements != reduction.type.placements:
            self._refuse("a statement of another shape or placement beside a small all-reduce",
                         "give it an op of its own", value.span)


def _single(forms: tuple[Form, ...]) -> tuple[Form, ...]:
    """The same, one word at a time; of those that then are equal the one that takes any payload."""
    return tuple({f.name: replace(f, wide=1) for f in forms}.values())


def _below(value: Value, stop: set) -> list[Value]:
    """All values of a tree, arguments first, each once; those in `stop` and what is below them left out."""
    found: dict[Value, None] = {}

    def walk(v: Value) -> None:
        if v not in found and v not in stop:
            for a in v.args:
                walk(a)
            found[v] = None

    walk(value)
    return list(found)

