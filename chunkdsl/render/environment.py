"""The Jinja environments: one for modules, one for pages. Templates print; what they cannot read off the schedule is a
filter here or a view."""

from __future__ import annotations

from functools import cache
from textwrap import wrap

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from chunkdsl.ir.meshes import World, world_text
from chunkdsl.ir.types import DimRef
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.schedule import Extent, Instruction, Launch
from chunkdsl.plan.settled import Gate
from chunkdsl.plan.tables import RouteTable
from chunkdsl.render.chunks import chunk_cap_text, chunk_text
from chunkdsl.render.layout import layout_value
from chunkdsl.render.sizes import dim_text
from chunkdsl.render.units import even, in_elements, is_even, slot_rows, vector_of
from chunkdsl.render.view import cut_before, extent_cap_text, extent_text
from chunkdsl.resources import folder

TORCH = {"bf16": "torch.bfloat16", "f16": "torch.float16", "f32": "torch.float32"}
TORCH |= {"i32": "torch.int32", "i64": "torch.int64"}
TRITON = {"bf16": "tl.bfloat16", "f16": "tl.float16", "f32": "tl.float32"}
PLAIN = {
    "gelu": "torch.nn.functional.gelu({0})",
    "relu": "torch.relu({0})",
    "silu": "torch.nn.functional.silu({0})",
    "tanh": "torch.tanh({0})",
    "gelu_grad": "gelu_slope({0})",
    "relu_grad": "({0} > 0).to({0}.dtype)",
    "silu_grad": "torch.sigmoid({0}) * (1 + {0} * (1 - torch.sigmoid({0})))",
    "tanh_grad": "1 - torch.tanh({0}) ** 2",
    "rms_norm": "{0} * torch.rsqrt({0}.square().mean(-1, keepdim=True) + {2}) * {1}",
    "rms_norm_grad": "norm_slope({0}, {1}, {2})",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
}
WALKS = {
    Walk.UP: "(rank + step) % W",
    Walk.DOWN: "(rank - step) % W",
    Walk.ASCENDING: "step",
    Walk.UP_OWN: "(rank + 1 + step) % W",
    Walk.DOWN_OWN: "(rank - 1 - step) % W",
    Walk.ASCENDING_OWN: "step + (step >= rank)",
}


def finalize(value):
    """Only text and integers may be printed: anything else is a hole in the view."""
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"a template prints {value!r}")
    return value


def extent_pair(extent: Extent) -> str:
    """(size, sharded) for the tables of a module: a name to solve for, a number, or a function of the dims. On a mesh
    of two axes the names of those follow that cut the size before the op's own."""
    size, before = cut_before(extent.size)
    more = f", {', '.join(map(quoted, before))}" if before else ""
    if isinstance(size, DimRef):
        text = f'"{size.name}"'
    elif isinstance(size, int):
        text = str(size)
    else:
        text = f"lambda d: {dim_text(size, 'd')}"
    return f"({text}, {layout_value(extent.layout) if extent.sharded else False}{more})"


def placements_text(tensor) -> str:
    """Of a parameter or result, as a tuple of texts."""
    return f"({', '.join(map(quoted, tensor.placements))},)"


def quoted(text: str) -> str:
    return f'"{text}"'


def worlds_text(worlds) -> str:
    """World sizes of a mesh of one axis as runs, of two as products."""
    if all(isinstance(w, int) for w in worlds):
        return ranges_text(worlds)
    return ", ".join(map(world_text, worlds))


def ranges_text(numbers) -> str:
    """1, 2, 3, 4, 8 -> 1 to 4, 8; a run of two stays a list."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    texts = (str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a} to {b}" for a, b in runs)
    return ", ".join(texts)


def flops_text(launch: Launch, nested: bool) -> str:
    """A multiplication and an addition for each element of the products' operands."""
    rows = extent_text(Extent(launch.rows, launch.space == "own", launch.layout), nested)
    factors = 2 * len(launch.products), rows, extent_text(launch.cols, nested), extent_text(launch.depth, nested)
    return " * ".join(
        str(f) if isinstance(f, int) or f.isidentifier() or f.endswith(")") else f"({f})" for f in factors
    )


def route_rows(table: RouteTable, world: World) -> str:
    """(parts, rows of each rank) of a table at one world size, a line for each rank where they do not fit one."""
    ranks = [f"({''.join(f'{_row(r)}, ' for r in rows).strip()})" for rows in table.rows(world)]
    text = f"({table.routing.parts(world)}, ({' '.join(f'{r},' for r in ranks)}))"
    if len(text) <= 96:
        return text
    lines = "\n".join(f"                {line}" for r in ranks for line in wrap(f"{r},", 100))
    return f"({table.routing.parts(world)}, (\n{lines}\n            ))"


def _row(row: tuple[int, ...]) -> str:
    return str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})"


def plain_value(launch: Launch) -> str:
    dtype = TORCH[launch.destination.dtype]
    return f"narrow({launch.value}, {dtype})"


class Compiled(BytecodeCache):
    """Templates as compiled, for this process: every op is rendered in an overlay, which would compile them anew."""

    def __init__(self) -> None:
        self.codes = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.codes[bucket.key, bucket.checksum] = bucket.code


@cache
def environment() -> Environment:
    env = Environment(
        bytecode_cache=Compiled(),
        loader=FileSystemLoader([f"{folder('templates')}/{language}" for language in ("triton", "cuda")]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
        autoescape=False,
    )
    env.globals["slot_rows"] = slot_rows
    env.filters |= {
        "torch_dtype": TORCH.__getitem__,
        "placements": placements_text,
        "triton_dtype": TRITON.__getitem__,
        "vec": vector_of,
        "item_bytes": ITEM.__getitem__,
        "elements": in_elements,
        "even": even,
        "is_even": is_even,
        "size": lambda s: dim_text(s, "dims"),
        "bound_size": lambda s: dim_text(s, "bounds"),
        "local_cap": extent_cap_text,
        "extent": extent_pair,
        "layout": layout_value,
        "chunk_rows": chunk_text,
        "chunk_cap": chunk_cap_text,
        "host_walk": WALKS.__getitem__,
        "plain_value": plain_value,
        "worlds": worlds_text,
        "world_value": str,
        "gates": gates_text,
        "index_of": lambda items, item: items.index(item),
        "route_rows": route_rows,
        "wrapped": lambda text, indent: f"\n{' ' * indent}".join(wrap(text, 116 - indent)),
        "dedent": lambda text: "\n".join(line.removeprefix("    ") for line in text.split("\n")),
    }
    return env


@cache
def page_environment() -> Environment:
    """The same for pages and images that people look at: templates/timeline, with text escaped."""
    return Environment(
        loader=FileSystemLoader(f"{folder('templates')}/timeline"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize,
        autoescape=True,
    )


def gates_text(gate: Gate) -> str:
    """(ranks, dim, least size) from how many ranks on which gate holds; no dim: always, or never where the size is
    None."""
    rows = gate.by_world or ((1, gate.fuse_from),)
    return f"({''.join(f'({ranks}, {quoted(f.dim or str())}, {f.count}), ' for ranks, f in rows).rstrip(' ')})"


def plain_step(step: Instruction, launch: Launch, held, bare: bool = False) -> str:
    """One epilogue instruction in torch, in f32 but where it is `bare`. `held` names a source's tensor."""
    widened = "{}" if bare else "wide({})"
    if step.op == "load":
        operand = next(o for o in launch.operands if o.name == step.args[0])
        return f"{step.target} = {widened.format(held(operand.source))}"
    if step.op == "round":
        rounded = f"narrow({step.args[0]}, {TORCH[str(step.args[1])]})"
        return f"{step.target} = {widened.format(rounded)}"
    return f"{step.target} = {PLAIN[step.op].format(*step.args)}"
