"""An op that is one exchange -> the text of its kernel and of its wrapper class."""

from __future__ import annotations

from types import SimpleNamespace

from chunkdsl.plan.exchange import Exchange
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.render.environment import environment, plain_step
from chunkdsl.render.straight import straight_steps
from chunkdsl.render.switched import cuda_source, passes

KINDS = {"bf16": 0, "f16": 1, "f32": 2}
FORMS = {"word": 0, "mark": 1, "flag": 2, "speculative": 3}
ROUNDS = {"one_shot": 1, "two_shot": 2}


def render_exchange(op: OpSchedule, schedule: Schedule, gradient: SimpleNamespace) -> SimpleNamespace:
    """Kernel and wrapper, as `render.module.render_op` returns them. `gradient`: what `gradient_of` there says."""
    x, env = op.exchange, environment().overlay()
    env.filters = environment().filters | {"plain_step": lambda step: plain(step, op)}
    dtypes = {p.name: p.dtype for p in op.parameters}
    outs = [f"{s.tensor}_out" for s in x.stores]
    words = {o.name for o in x.operands if o.role in ("full", "row") and o.dtype == x.dtype}
    held = {o.name: f"{o.source}_.view(torch.int32)" if o.name in words else f"{o.source}_" for o in x.operands}
    held |= {
        f"{s.tensor}_out": f"{s.tensor}_.view(torch.int32)" if s.dtype == x.dtype else f"{s.tensor}_" for s in x.stores
    }
    context = dict(
        op=op,
        x=x,
        path=schedule.path,
        moves_only=moves_only(x),
        straight=straight_steps(op),
        gradient=gradient,
        ranges=schedule.ranges,
        halves=(0,) if x.dtype == "f32" else (0, 1),
        kind=KINDS[x.dtype],
        rounds=ROUNDS[x.algorithm],
        passes=passes(x) if x.long_rows else (),
        forms=[(FORMS[f.name], f.words, f.slots, f.wide, f.blocks, f.registers) for f in x.forms],
        tensors=", ".join([*(o.name for o in x.operands), *outs]),
        held=[(name, held[name]) for name in [*(o.name for o in x.operands), *outs]],
        operand=lambda name: next(o for o in x.operands if o.name == name),
        inout=list(op.updates),
        matrices=sorted({x.payload, *(o.source for o in x.operands if o.name in words and dtypes.get(o.source))})
        if x.unit == 16
        else [],
        class_name="_" + "".join(p[:1].upper() + p[1:] for p in op.name.split("_")),
        arguments=", ".join(f"{p.name}_" for p in (*op.parameters, *op.results)),
        inputs=", ".join(f"{p.name}_" for p in op.parameters),
    )
    kernels = [env.get_template("exchange.py.jinja").render(**context).strip("\n")]
    if x.via == "multimem":
        kernels.append(f'{x.name.upper()}_SWITCH = r"""\n{cuda_source(x, schedule.path)}"""')
    return SimpleNamespace(
        name=op.name,
        class_name=context["class_name"],
        parameters=op.parameters,
        results=op.results,
        schedule=op,
        kernels=kernels,
        text=env.get_template("exchange_operation.py.jinja").render(**context).strip("\n"),
    )


def plain(step, op: OpSchedule) -> str:
    """One instruction of the epilogue in torch, on whole tensors."""
    return plain_step(step, op.exchange, lambda source: f"{source}_", moves_only(op.exchange))


def moves_only(x: Exchange) -> bool:
    """Is the sum all there is? Then the fallback needs no f32 behind it."""
    return len(x.stores) == 1 and all(step.op == "round" for step in x.epilogue)
