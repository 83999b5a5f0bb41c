"""`plan` items: names and forms are checked, the body is carried out for the size that the mesh declares, and a
`Routing` is made that carries it out for any other. Chooses nothing: the collective that takes the plan does.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check import names as rules
from chunkdsl.check import policies as policy_rules
from chunkdsl.check import routes
from chunkdsl.diagnostics import Label, Report
from chunkdsl.ir.meshes import World, grid_of
from chunkdsl.ir.meshes import sizes as sizes_of
from chunkdsl.ir.types import Mesh
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.plan_body import Body
from chunkdsl.lower.plan_form import NoForm, find_form
from chunkdsl.lower.policies import Policies
from chunkdsl.lower.policy_values import AUTO, BUILT
from chunkdsl.lower.sizes import FUNCTIONS, Dims
from chunkdsl.lower.tensors import find_axis
from chunkdsl.plan.routing import Routing, Way
from chunkdsl.plan.steps import Route
from chunkdsl.plan.trace import CONTRACTS
from chunkdsl.plan.trace_breaches import Breach
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

STEP_KEYS = ("via", "chunk")


def plan_axes(
    item: nodes.Plan | nodes.UsePlan, names: Names, mesh: Mesh | None, report: Report
) -> list[int] | None:
    """The mesh axes that a plan runs over; None if its head (name, contract, axes) was reported."""
    axes = [find_axis(n.text, n.span, names, mesh, report) for n in item.axes.names]
    if item.name.text in BUILT["route"]:
        report.add(rules.reserved_name(item.name.text, item.name.span, "it is a route of the language"))
        return None
    if item.contract.text not in CONTRACTS:
        report.add(routes.unknown_contract(item.contract.text, CONTRACTS, item.contract.span))
        return None
    if mesh is None or None in axes:
        return None
    if axes != sorted(set(axes)):
        usage = ", ".join(a.name for i, a in enumerate(mesh.axes) if i in axes)
        report.add(rules.wrong_arguments("over", item.axes.span, "takes each axis once, the outer first", usage))
        return None
    return axes


def declare_plan(
    item: nodes.Plan, source: Source, names: Names, mesh: Mesh | None, dims: Dims, policies: Policies, report: Report
) -> Routing | None:
    """The routing of a plan; None if something in it was reported."""
    axes = plan_axes(item, names, mesh, report)
    if axes is None:
        return None
    fixed = {name: size for name, size in dims.constants.items() if isinstance(size, int)}
    reader = _Reader(item, names, dims, policies, report, fixed)
    if not reader.read():
        return None
    sizes = tuple((mesh.axes[i].name, mesh.axes[i].size) for i in axes)
    form, why = None, ""
    try:
        form = find_form(item, fixed)
    except NoForm as e:
        why = str(e)
    line = source.line_of(item.span.start)

    def make(world: World) -> Route | Breach:
        """The body carried out for so many ranks on each axis."""
        axes = tuple((name, size) for (name, _), size in zip(sizes, sizes_of(world), strict=True))
        return Body(item, source, axes, fixed, reader.manners, report.watch).route()

    routing = Routing(
        item.name.text, item.contract.text, tuple(name for name, _ in sizes), line, make,
        form=form, why_not=why, fetches=reader.fetches, ways=reader.ways,
        chunk=next((chunk for _, chunk in reader.manners.values()), None), watch=report.watch,
    )  # fmt: skip
    world = grid_of(sizes[0][1], tuple(size for _, size in sizes))
    for breach in routing.breaches(world):
        placed = breach if breach.line or breach.span else replace(breach, span=item.name.span)  # no step does it
        report.add(routes.explain_breach(routing.compared(placed), source))
    return None if routing.breaches(world) else routing


class _Reader:
    """Looks up every name of a body once, with the names in scope. `manners`: (via, chunk) by start of a transfer."""

    def __init__(self, item: nodes.Plan, names: Names, dims: Dims, policies: Policies, report: Report, fixed) -> None:
        self._item, self._names, self._dims, self._policies, self._report = item, names, dims, policies, report
        self._axes = [n.text for n in item.axes.names]
        self._known: dict[str, Span | None] = dict.fromkeys(
            (*fixed, *self._axes, *(f"{a}_rank" for a in self._axes), "rank")
        )
        self._functions = Nearest(FUNCTIONS)
        self._good = True
        self._transfers: list[nodes.Transfer] = []
        self.fetches = False
        self.manners: dict[int, tuple[str | None, object]] = {}
        self._via_spans: dict[int, Span] = {}

    def read(self) -> bool:
        """Whether all is well; what is not was reported."""
        self._block(self._item.body)
        self._check_chunks()
        return self._good

    def _fail(self, diagnostic) -> None:
        self._report.add(diagnostic)
        self._good = False

    def _block(self, steps: tuple[nodes.Step, ...]) -> None:
        outer = dict(self._known)
        for step in steps:
            match step:
                case nodes.Let():
                    self._size(step.value)
                    self._bind(step.name)
                case nodes.Loop():
                    for bound in step.bounds:
                        self._size(bound)
                    inside = dict(self._known)
                    self._bind(step.name)
                    self._block(step.body)
                    self._known = inside
                case nodes.Branch():
                    self._size(step.condition.left)
                    self._size(step.condition.right)
                    self._block(step.then)
                    self._block(step.otherwise)
                case nodes.LaneBlock():
                    self._size(step.number)
                    self._block(step.body)
                case nodes.Transfer():
                    self._transfer(step)
        self._known = outer

    def _bind(self, name: nodes.Name) -> None:
        if name.text in self._known:
            first = self._known[name.text]
            self._fail(rules.duplicate_name(f"`{name.text}`", name.span, first, "a name of a plan holds one number"))
        self._known[name.text] = name.span

    def _transfer(self, t: nodes.Transfer) -> None:
        self._transfers.append(t)
        self.fetches = self.fetches or t.action == "fetch"
        for region in (t.region, t.into):
            if region is None:
                continue
            if region.base.text != self._item.tensor.text:
                near = Nearest((self._item.tensor.text,)).of(region.base.text)
                self._fail(rules.unknown_name(region.base.text, region.base.span, "the plan's tensor", near))
            self._count(region.index, region.span, f"{region.base.text}[...]")
            for size in (*region.index, *(region.part or ())):
                self._size(size)
        self._count(t.peer, t.peer[0].span, "a peer")
        for size in t.peer:
            self._size(size)
        if t.policy is not None:
            self._manner(t)

    def _count(self, index: tuple[nodes.Size, ...], span: Span, what: str) -> None:
        if len(index) not in (1, len(self._axes)):
            need = f"takes one number, or one for each of {', '.join(self._axes)}; this has {len(index)}"
            self._fail(rules.wrong_arguments(what, span, need, f"{what}: {', '.join(self._axes)}"))

    def _manner(self, t: nodes.Transfer) -> None:
        settings = self._policies.resolve(t.policy)
        if settings is None:
            self._good = False
            return
        for key, setting in settings.items():
            if key not in STEP_KEYS and not setting.lenient:
                labels = (Label(t.span, "a step"),)
                needs = f"{key} of its own (it knows via and chunk): say it where the plan is used"
                self._fail(policy_rules.policy_key_fits_nothing(key, setting.span, needs, "a step", labels))
        found = [settings[key].value if key in settings else None for key in STEP_KEYS]
        self.manners[t.span.start] = tuple(None if value is AUTO else value for value in found)
        if "via" in settings:
            at = settings["via"].span
            inside = t.policy.span.start <= at.start < t.policy.span.end
            self._via_spans[t.span.start] = at if inside else t.policy.span

    @property
    def ways(self) -> tuple[Way, ...]:
        """Each way in which transfers travel once, with the place of the first."""
        found: dict[tuple[bool, str | None, bool], Way] = {}
        for t in self._transfers:
            via, fetch = self.manners.get(t.span.start, (None, None))[0], t.action == "fetch"
            way = Way(t.adding, via, self._via_spans.get(t.span.start), fetch=fetch)
            found.setdefault((t.adding, via, fetch), way)
        return tuple(found.values())

    def _check_chunks(self) -> None:
        """All steps, with or without `with`, cut shards alike."""
        found = {t: self.manners.get(t.span.start, (None, None))[1] for t in self._transfers}
        one = next((t for t, chunk in found.items() if chunk is not None), None)
        other = next((t for t, chunk in found.items() if one is not None and chunk != found[one]), None)
        if other is not None:
            self._fail(routes.chunks_differ(one.policy.span, other.span))

    def _size(self, node: nodes.Size) -> None:
        match node:
            case nodes.SizeName():
                self._name(node)
            case nodes.SizeCall():
                self._call(node)
            case nodes.SizeBinary():
                self._size(node.left)
                self._size(node.right)

    def _name(self, node: nodes.SizeName) -> None:
        if node.name in self._known or node.name in self._names.lost:
            self._good = self._good and node.name in self._known
            return
        known = self._names.known_as(node.name)
        if node.name in self._dims.ranges:
            known = f"`{node.name}` is known when the op is called; a plan knows fixed sizes"
        what = "a number of this plan: rank, an axis, a fixed dim, a loop variable or a let"
        self._fail(rules.unknown_name(node.name, node.span, what, Nearest(tuple(self._known)).of(node.name), known))

    def _call(self, node: nodes.SizeCall) -> None:
        name = node.function.text
        if name not in FUNCTIONS:
            near = self._functions.of(name)
            self._fail(rules.unknown_function(name, node.function.span, near, "sizes know cdiv min max ..."))
        elif len(node.args) != FUNCTIONS[name]:
            usage = f"`{name}({', '.join('ab'[: FUNCTIONS[name]])})`"
            self._fail(rules.wrong_arguments(name, node.span, f"takes {FUNCTIONS[name]} sizes", usage))
        for arg in node.args:
            self._size(arg)
