"""The figures of a prediction: as data for JSON, and as the words that a page shows. Computes none that matter."""

from __future__ import annotations

from dataclasses import asdict

from chunkdsl.cost.lanes import lane_times
from chunkdsl.cost.predict import Prediction
from chunkdsl.ir.meshes import run_time

KINDS = {"collective": "collectives", "product": "products", "pointwise": "pointwise kernels"}


def facts(p: Prediction) -> dict:
    """Every total, in microseconds, and what it was predicted for."""
    return {
        "op": p.op.name,
        "world": p.plan.world,
        "gpu": p.machine.gpu.name,
        "link": links_text(p),
        "captured": p.machine.captured,
        "dims": run_time_dims(p),
        "tasks": len(p.plan.tasks),
        "total_us": round(p.total, 3),
        "compute_us": round(p.compute, 3),
        "communication_us": round(p.communication, 3),
        "exposed_us": round(p.exposed, 3),
        "hidden": round(p.hidden, 4),
        "overlap": round(p.overlap, 4),
        "ideal_us": round(p.ideal, 3),
        "baseline_us": round(p.baseline, 3),
        "speedup": round(p.speedup, 4),
        "ranks_us": [round(us, 3) for us in rank_ends(p)],
        "lanes": [_rounded(asdict(x)) for x in lane_times(p)],
        "baseline": [{"kind": s.kind, "what": s.what, "line": s.line, "us": round(s.us, 3)} for s in p.stages],
    }


def _rounded(values: dict) -> dict:
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in values.items()}


def links_text(p: Prediction) -> str:
    """The link; of two tiers both, with the ranks that the faster one joins."""
    m = p.machine
    return m.link.name if m.outer is None else f"{m.link.name} within {m.inner}, {m.outer.name} between"


def run_time_dims(p: Prediction) -> dict[str, int]:
    """The bindings of the call, without what a mesh of two axes adds to them."""
    return run_time(dict(p.plan.calls[0]))


def rank_ends(p: Prediction) -> list[float]:
    """When each rank's call ends."""
    ends = [0.0] * p.plan.world
    for task, span in zip(p.plan.tasks, p.spans, strict=True):
        ends[task.rank] = max(ends[task.rank], span.end)
    return ends


def us_text(us: float) -> str:
    """Three digits, in us or ms."""
    if us >= 1000:
        return f"{us / 1000:.2f} ms"
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"


def cards(p: Prediction) -> list[tuple[str, str, str, str]]:
    """(title, figure, what it means, good or bad or "") of the totals that a page shows first."""
    against = f"{'slower' if p.speedup < 1 else 'faster'} than stream by stream, {us_text(p.baseline)}"
    tone = "bad" if p.speedup < 0.995 else "good" if p.speedup > 1.005 else ""
    hidden = f"of {us_text(p.communication)}; {us_text(p.exposed)} exposed"
    return [
        ("Predicted call", us_text(p.total), f"{len(p.plan.tasks):,} tasks on {p.plan.world} ranks", ""),
        ("Speed-up", f"{p.speedup:.2f}x", against, tone),
        ("Communication hidden", f"{100 * p.hidden:.0f}%", hidden, ""),
        ("Of the ideal", f"{100 * p.ideal / p.total:.0f}%", f"max(compute, communication) is {us_text(p.ideal)}", ""),
    ]


def comparisons(p: Prediction) -> list[tuple[str, float, list[tuple[str, str, float]]]]:
    """Stacked bars: (title, total, [(kind, hover text, us)])."""
    parts: dict[str, float] = {}
    for stage in p.stages:
        parts[stage.kind] = parts.get(stage.kind, 0.0) + stage.us
    baseline = [(kind, f"{KINDS[kind]}: {us_text(us)}", us) for kind, us in parts.items()]
    compute = min(p.compute, p.total)
    fused = [("product", f"compute: {us_text(compute)}", compute)]
    fused.append(("exposed", f"exposed communication: {us_text(p.total - compute)}", p.total - compute))
    ideal = [("ideal", f"the longer of compute and communication: {us_text(p.ideal)}", p.ideal)]
    return [("Stream by stream", p.baseline, baseline), ("This plan", p.total, fused), ("Ideal", p.ideal, ideal)]


def sentence(p: Prediction) -> str:
    """All totals in one line."""
    speed = f"{p.speedup:.2f} times as fast as stream by stream ({us_text(p.baseline)})"
    hidden = f"{100 * p.hidden:.0f} % of {us_text(p.communication)} communication hidden, {us_text(p.exposed)} exposed"
    return f"{p.op.name}: {us_text(p.total)} predicted, {speed}; {hidden}; ideal {us_text(p.ideal)}"


def assumptions(p: Prediction) -> str:
    """One sentence: what the prediction is for."""
    sizes = ", ".join(f"{name} = {value:,}" for name, value in run_time_dims(p).items())
    how = "inside a CUDA graph" if p.machine.captured else "launched from Python"
    for_ = f" for {sizes}" if sizes else ""
    return f"{p.plan.world} x {p.machine.gpu.title} over {links_text(p)}{for_}, {how}"
