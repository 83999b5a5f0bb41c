"""A syntax tree -> a typed program: names, sizes, tensors, policies, then each op. Schedules nothing.

Every finding is reported; what failed is left out, and its uses say nothing more.
"""

from __future__ import annotations

from chunkdsl.check import names as rules
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Gradient, Op, Program
from chunkdsl.ir.types import Mesh
from chunkdsl.lower.expressions import File
from chunkdsl.lower.kernel_items import DeclaredKernel, declare_kernel
from chunkdsl.lower.names import Elsewhere, Names, collect_names, nowhere
from chunkdsl.lower.ops import lower_op
from chunkdsl.lower.plans import declare_plan
from chunkdsl.lower.policies import Policies
from chunkdsl.lower.sizes import Dims
from chunkdsl.lower.tensors import Tensors, lower_mesh
from chunkdsl.source import Source
from chunkdsl.syntax import nodes


def lower(
    file: nodes.File, source: Source, report: Report, elsewhere: Elsewhere = nowhere
) -> Program | None:
    """The typed program of a file. Ops with errors are left out of it. `elsewhere`: see `Names`.

    None if no op could be built on it: the mesh has an error, is not built yet, or is missing where one is needed.
    """
    names = collect_names(file, source, report, elsewhere)
    mesh = lower_mesh(names.mesh, report) if names.mesh is not None else None
    dims = Dims(names, source, report)
    dims.declare(file.items)
    tensors = Tensors(names, mesh, dims, report)
    kernels: dict[str, DeclaredKernel] = {}
    for item in file.items:
        if isinstance(item, nodes.Tensor):
            tensors.declare(item)
        elif isinstance(item, nodes.Kernel):
            if (declared := declare_kernel(item, source, report)) is not None:
                kernels[declared.name] = declared
    policies = Policies(names, dims, report)
    policies.declare_all()
    plans = {}
    imported: list[str] = []
    for item in file.items:
        if not isinstance(item, nodes.Plan | nodes.UsePlan) or names.kinds[item.name.text] != ("plan", item.name.span):
            continue
        if isinstance(item, nodes.Plan):
            plans[item.name.text] = declare_plan(item, source, names, mesh, dims, policies, report)
        else:
            from chunkdsl.lower.use_plan import declare_use_plan  # few specs need it

            plans[item.name.text] = declare_use_plan(item, source, names, mesh, imported, report)
    items = [i for i in file.items if isinstance(i, nodes.Op) and names.kinds[i.name.text] == ("op", i.name.span)]
    ops: list[Op] = []
    gradients: list[Gradient] = []
    if mesh is not None:
        known = File(source, report, names, mesh, dims, tensors.declared, policies, kernels)
        ops = [op for item in items if (op := lower_op(item, known)) is not None]
        gradients += _derive(file, ops, known)
    elif items:
        _need_mesh(items[0], names, report)
        return None
    if mesh is None and (names.mesh is not None or names.lacks_mesh or names.mesh_lost):
        return None
    if mesh is not None and len(mesh.axes) > 2:
        return None
    declared = {name: t.type for name, t in tensors.declared.items()}
    routings = {name: routing for name, routing in plans.items() if routing is not None}
    return Program(source, mesh or Mesh(()), dims.ranges, dims.constants, declared, tuple(ops), routings,
                   tuple(imported), tuple(gradients), kernels)


def _derive(file: nodes.File, ops: list[Op], known: File) -> list[Gradient]:
    """The gradients of a file; the ops that they consist of are added to `ops`."""
    items = [i for i in file.items if isinstance(i, nodes.Gradient)]
    if not items:
        return []
    from chunkdsl.lower.gradients import lower_gradient  # few specs need it

    found = []
    for item in items:
        if (made := lower_gradient(item, {op.name: op for op in ops}, known)) is not None:
            found.append(made[0])
            ops += made[1]
    return found


def _need_mesh(op: nodes.Op, names: Names, report: Report) -> None:
    if names.mesh is None and not names.mesh_lost and not names.lacks_mesh:
        names.lacks_mesh = True
        report.add(rules.no_mesh(op.name.span))
