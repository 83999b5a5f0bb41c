"""The pointwise tree of a statement as instructions in f32, and the tile that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from chunkdsl.check.resources import accumulator_too_large, shared_memory_too_large
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.lower.choices import default_tile
from chunkdsl.lower.facts import POINTWISE, ROWWISE, Refused
from chunkdsl.lower.whole_rows import WholeRows
from chunkdsl.plan.limits import ACCUMULATOR_REGISTERS, SHARED_BYTES, stages_for
from chunkdsl.plan.routes import GATHER_ARRIVAL, GIVEN, LOCAL_FIRST, SCATTER_ORDER, Walk
from chunkdsl.plan.schedule import Choice, Instruction, Operand, Tiling

GENERATED = "library kernels cannot wait for chunks"
STAGES = 4  # of the software pipeline, as in the kernels of the design that were measured


class Epilogue(WholeRows):
    def __init__(self, op: Op, program: Program, report: Report, kernels: set[str], settled: Mapping) -> None:
        super().__init__(op, program, report, kernels, settled)
        self.gathers: dict[Value, tuple] = {}
        self.wholes: dict[str, str] = {}  # gathered buffer -> the same as one matrix

    def _walk(self, settled, scatter) -> Walk:
        if settled:
            info = settled[2]
            if info["order"] == "arrival" and info["route"] is not None:
                return GATHER_ARRIVAL[info["route"], info["side"]]
        elif scatter:
            info = scatter[0]
            if info["order"] in ("arrival", "interleaved"):
                return SCATTER_ORDER[info["route"] or "swizzle"]
        else:
            return Walk.UP
        return GIVEN if info["order"] == "given" else LOCAL_FIRST

    def _tiling(self, products: list[Value], value: Value) -> Tiling:
        if not products:
            return self._rows_tiling(value)
        product, dtype = products[0], products[0].args[0].type.dtype
        policy = product.policy
        span = policy.spans.get("tile", product.span)
        n = len(products)
        usual = default_tile(dtype.value, n)
        tile = policy.tile or self._auto(product, "tile", usual, "x".join(map(str, usual)), "fills the register file")
        bm, bn, bk = tile
        text = f"{bm}x{bn}x{bk}"
        if bm * bn * n > ACCUMULATOR_REGISTERS:
            self.report.add(accumulator_too_large(text, n, span))
            raise Refused
        stage_bytes = (bm + n * bn) * bk * dtype.bytes
        if not any(stages_for(t, stage_bytes, 1) for t in SHARED_BYTES if t != "gfx942"):
            self.report.add(shared_memory_too_large(text, stage_bytes, SHARED_BYTES["sm_90"], "sm_90", span))
            raise Refused
        fit, full = "or as many as fit the target's shared memory", "at most 128 accumulator registers a thread"
        by_rule = 8 if bm * bn * n >= 128 * 128 else 4
        stages = policy.stages or self._auto(product, "stages", STAGES, str(STAGES), fit)
        warps = policy.warps or self._auto(product, "warps", by_rule, str(by_rule), full)
        if policy.compute is None:
            self._auto(product, "compute", "generated", "generated", GENERATED)
        return Tiling(bm, bn, bk, warps, stages, 32, 256)

    def _auto(self, product: Value, key: str, by_rule: object, shown: str, why: str):
        """What a key of a product becomes that the spec leaves open: the rule's value, or what was measured."""
        rule = Choice(f"{self.op.name}: product", key, shown, why)
        found, choice = self.settled.choice(product, key, by_rule, rule)
        self.choices.append(choice)
        return found

    def _epilogue(self, value: Value, made: dict, operands: dict[Value, Operand], steps: list) -> str | int | float:
        """Instructions for a pointwise tree. `made` maps leaves and shared nodes to their targets."""
        if value in made:
            return made[value]
        if value.kind == "const":
            return value.attrs["number"]
        target = f"t{len(made) + len(steps)}"
        if value in self.places or value in operands:
            if value not in operands:
                operands[value] = self._pointwise_operand(value)
            op = operands[value]
            if op.role == "a":  # a gathered value used element by element
                role = "column" if value.type.shape[1] == 1 else "full"
                operands[value] = op = replace(op, name=f"{op.name}_{role}", role=role)
            steps.append(Instruction(target, "load", (op.name,)))
        elif value.kind == "swiglu":
            gate, up = (self._epilogue(a, made, operands, steps) for a in value.args)
            target = f"t{len(made) + len(steps)}"
            steps.append(Instruction(target, "silu", (gate,)))
            steps.append(Instruction(f"{target}m", "mul", (target, up)))
            target = f"{target}m"
        elif value.kind in POINTWISE:
            args = tuple(self._epilogue(a, made, operands, steps) for a in value.args)
            target = f"t{len(made) + len(steps)}"
            if value.kind == "cast":
                steps.append(Instruction(target, "round", (args[0], value.type.dtype.value)))
            else:
                steps.append(Instruction(target, value.kind, args))
        elif value.kind in ROWWISE:
            args = tuple(self._epilogue(a, made, operands, steps) for a in value.args)
            target = f"t{len(made) + len(steps)}"
            steps.append(Instruction(target, value.kind, (*args, float(value.attrs["eps"]))))
        else:
            self._refuse(f"{value.kind} inside a pointwise expression", "bind it to a name first", value.span)
        made[value] = target
        return target

    def _pointwise_operand(self, value: Value) -> Operand:
        source, layout = self.places[value]
        shape = value.type.shape
        if value.type.rank > 2:
            self._refuse("a pointwise operand of more than two dimensions", "reshape it to a matrix", value.span)
        flat = len(shape) < 2 or shape[0] == 1
        if flat:
            role = "scalar" if not shape or shape[-1] == 1 else "row"
        else:
            role = "column" if shape[1] == 1 else "full"
        arrived = self.gathers[value][0].arrived if value in self.gathers else None
        return Operand(f"{source}_{role}", role, self._dtype(value), source, layout, arrived=arrived)
