"""An exchange in the NVLink switch -> the text of its kernel in CUDA C++; what each norm of one goes through."""

from __future__ import annotations

from types import SimpleNamespace

from chunkdsl.plan.exchange import Exchange
from chunkdsl.plan.schedule import Instruction
from chunkdsl.render.environment import environment

MULTIMEM = {
    "bf16": "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2",
    "f16": "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2",
    "f32": "multimem.ld_reduce.relaxed.sys.global.add.v4.f32",
}
MULTIMEM_STORE = {
    "bf16": "multimem.st.relaxed.sys.global.v4.bf16x2",
    "f16": "multimem.st.relaxed.sys.global.v4.f16x2",
    "f32": "multimem.st.relaxed.sys.global.v4.f32",
}
# The functions of `runtime/device.py`, after its formulas.
FUNCTIONS = {
    "relu": "fmaxf(x, 0.0f)",
    "gelu": "0.5f * x * (1.0f + erff(x * 0.7071067811865476f))",
    "silu": "x / (1.0f + expf(-x))",
    "tanh": "tanhf(x)",
}


def cuda_source(x: Exchange, path: str) -> str:
    """The kernel of `via = multimem` in CUDA C++."""
    env = environment().overlay()
    env.filters = environment().filters | {"float32": lambda number: f"{float(number)!r}f"}
    names, threads = [o.name for o in x.operands], 32 * x.forms[0].blocks[0][1]
    outs = [f"{s.tensor}_out" for s in x.stores]
    steps = dict.fromkeys(step.op for step in x.epilogue)
    function = "static __device__ __forceinline__ float {}_of(float x) {{ return {}; }}"
    return env.get_template("multimem.cu.jinja").render(
        x=x,
        path=path,
        programs=1024,
        instruction=MULTIMEM[x.dtype],
        store=MULTIMEM_STORE[x.dtype],
        threads=threads,
        each=-(-x.vectors // threads),
        passes=passes(x),
        functions=[function.format(op, FUNCTIONS[op]) for op in steps if op in FUNCTIONS],
        operand=lambda name: next(o for o in x.operands if o.name == name),
        parameters=", ".join([*(f"const char* {n}" for n in names), *(f"char* {n}" for n in outs)]),
        arguments=", ".join([*names, *outs]),
    )


def passes(x: Exchange) -> list[SimpleNamespace]:
    """For each norm: its instruction, and those before it that make what it squares."""
    return [SimpleNamespace(norm=n, steps=below(n.args[0], x.epilogue)) for n in x.epilogue if n.op == "rms_norm"]


def below(target: str, steps: tuple[Instruction, ...]) -> list[Instruction]:
    """The instructions that make `target`, in order."""
    wanted, found = {target}, []
    for step in reversed(steps):
        if step.target in wanted:
            wanted.update(a for a in step.args if isinstance(a, str))
            found.insert(0, step)
    return found
