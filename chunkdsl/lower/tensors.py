"""Mesh and tensor declarations: `nodes.Mesh`, `nodes.TypeExpr` -> ir types. Reports unknown axes and dtypes, axes and
dimensions used twice, and meshes that are not built. Expressions are typed in `expressions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from chunkdsl.check import axes as axis_rules
from chunkdsl.check import names as name_rules
from chunkdsl.check import shapes as shape_rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Report
from chunkdsl.ir.types import DType, Mesh, MeshAxis, Partial, Placement, Replicate, Shard, SymSize, TensorType
from chunkdsl.lower.layouts import as_written, find_layout
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.sizes import Dims
from chunkdsl.source import Span
from chunkdsl.syntax import nodes

DTYPES = {d.value: d for d in DType}
BUILT_DTYPES = (DType.BF16, DType.F16, DType.F32)
TABLE_DTYPES = (DType.I32, DType.I64)  # of arguments of users' kernels alone
_NEAR_DTYPE = Nearest(DTYPES)
_SPELLINGS = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "fp16": "f16", "float32": "f32", "float": "f32",
              "fp32": "f32", "fp8": "f8e4m3", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "int8": "i8",
              "int32": "i32", "int": "i32", "int64": "i64"}


@dataclass(frozen=True)
class Declared:
    """A tensor declaration that is in order. `dims` are the names of its dimensions, None where a size is no name."""

    type: TensorType
    dims: tuple[str | None, ...]
    span: Span  # of the name
    dtype_span: Span


def lower_mesh(node: nodes.Mesh, report: Report) -> Mesh | None:
    """The mesh; None if an axis is bad. A mesh of more than two axes is typed, and refused as not built yet."""
    for axis in node.axes:
        if axis.size < 1:
            why = "an axis has at least 1 rank"
            report.add(shape_rules.size_out_of_range(f"axis `{axis.name.text}`", axis.span, why))
            return None
    if len(node.axes) > 2:
        report.add(not_built_yet("a mesh of three axes", node.span, "use two: `mesh node[2] over rdma, gpu[8]`"))
    seen = {a.name.text: a for a in reversed(node.axes)}
    axes = tuple(a for a in node.axes if seen[a.name.text] is a)
    return Mesh(tuple(MeshAxis(a.name.text, a.size, a.link.text if a.link else None) for a in axes))


def find_dtype(name: nodes.Name | nodes.Ref) -> DType | Diagnostic:
    word = name.text if isinstance(name, nodes.Name) else name.name
    if word in DTYPES:
        return DTYPES[word]
    near = (_SPELLINGS[word],) if word in _SPELLINGS else _NEAR_DTYPE.of(word)
    return name_rules.unknown_dtype(word, name.span, near)


class Tensors:
    """Types of the declared tensors. One whose declaration failed is left out."""

    def __init__(self, names: Names, mesh: Mesh | None, dims: Dims, report: Report) -> None:
        self.declared: dict[str, Declared] = {}
        self._names, self._mesh, self._dims, self._report = names, mesh, dims, report

    def declare(self, item: nodes.Tensor) -> None:
        if self._names.kinds[item.name.text] != ("tensor", item.name.span):
            return  # the second of that name
        dtype = find_dtype(item.type.dtype)
        if isinstance(dtype, Diagnostic):
            self._report.add(dtype)
        shape = [self._dims.size(d.size) for d in item.type.dims]
        names = self._dim_names(item)
        placements = self._placements(item.type)
        if isinstance(dtype, DType) and names is not None and placements is not None and None not in shape:
            sizes: tuple[SymSize, ...] = tuple(s for s in shape if s is not None)
            self.declared[item.name.text] = Declared(TensorType(dtype, sizes, placements), names, item.name.span,
                                                     item.type.dtype.span)

    def _dim_names(self, item: nodes.Tensor) -> tuple[str | None, ...] | None:
        first: dict[str, Span] = {}
        names: list[str | None] = []
        twice = False
        for d in item.type.dims:
            name = d.size.name if isinstance(d.size, nodes.SizeName) else None
            if name in first:
                twice = True
                other = next(n for n in (f"{name}{i}" for i in range(2, 1000)) if not self._names.taken(n))
                line = Edit(Span(item.span.start, item.span.start), f"dim {other} = {name}\n")
                fix = Fix(f"declare {other} and use it", (line, Edit(d.size.span, other)))
                self._report.add(shape_rules.dimension_twice_in_tensor(name, other, d.size.span, first[name], (fix,)))
            elif name is not None:
                first[name] = d.size.span
            names.append(name)
        return None if twice else tuple(names)

    def _placements(self, type: nodes.TypeExpr) -> tuple[Placement, ...] | None:
        """One placement for each axis of the mesh; None if something is wrong with one."""
        found: dict[int, tuple[Placement, Span]] = {}
        good = True
        for d, dim in enumerate(type.dims):
            if isinstance(dim.place, nodes.Layout):
                layout = find_layout(as_written(dim.place))
                if isinstance(layout, Diagnostic):
                    self._report.add(layout)
                    good = False
                else:
                    good &= self._axes(dim.place.axes, Shard(d, layout), found)
            elif dim.place is not None:
                good &= self._axes(dim.place, Shard(d), found)
        if type.partial is not None:
            good &= self._axes(type.partial, Partial(), found)
        if not good or self._mesh is None:
            return None if not good or found else ()
        return tuple(found[i][0] if i in found else Replicate() for i in range(len(self._mesh.axes)))

    def _axes(self, axes: nodes.Axes, placement: Placement, found: dict[int, tuple[Placement, Span]]) -> bool:
        good, last = True, -1
        for name in axes.names:
            index = find_axis(name.text, name.span, self._names, self._mesh, self._report)
            if index is None:
                good = False
                continue
            if index in found:
                before, span = found[index]
                both = isinstance(placement, Partial) and isinstance(before, Shard)
                clash = axis_rules.axis_shards_and_sums if both else axis_rules.axis_used_twice
                self._report.add(clash(name.text, name.span, span))
                good = False
            elif index < last and isinstance(placement, Shard):
                outer, inner = name.text, self._mesh.axes[last].name
                self._report.add(axis_rules.shards_out_of_order(outer, inner, axes.span, "written inner first",
                                                           f"write the outer axis first, as the mesh does: {outer}"))
                good = False
            else:
                found[index] = (placement, name.span)
                last = max(last, index)
        return good


def find_axis(name: str, span: Span, names: Names, mesh: Mesh | None, report: Report) -> int | None:
    """Index of a mesh axis. Reports an unknown one, or that there is no mesh, unless a declaration of it failed."""
    if mesh is not None:
        for i, axis in enumerate(mesh.axes):
            if axis.name == name:
                return i
    if name in names.lost or names.mesh_lost or (names.mesh is not None and mesh is None):
        return None
    if mesh is None:
        if not names.lacks_mesh:
            names.lacks_mesh = True
            report.add(name_rules.no_mesh(span))
        return None
    report.add(name_rules.unknown_axis(name, span, names.near(name, "axis"), names.mesh.span if names.mesh else None))
    return None
