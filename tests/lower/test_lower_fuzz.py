"""Lowering never raises, whatever parses: specs with tokens dropped, doubled, swapped or exchanged for others."""

import random
import re
from pathlib import Path

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.ir.dump import dump_program
from chunkdsl.lower.program import lower
from chunkdsl.source import Source
from chunkdsl.syntax import nodes
from chunkdsl.syntax.parse import parse

TESTS = Path(__file__).parent.parent
SPECS = [p.read_text() for p in sorted((TESTS / "cases" / "language").glob("*.chunk"))]
SPECS += re.split(r"(?m)^# ---.*\n", "# ---\n".join(p.read_text() for p in sorted((TESTS / "cases").glob("*.chunk"))))
TOKEN = re.compile(r"#[^\n]*|\"[^\"\n]*\"|\w+|->|\.\.|\s+|.", re.DOTALL)
WORDS = [t for spec in SPECS for t in TOKEN.findall(spec) if t.strip() and t[0] != "#"]


def mutate(text, rng):
    tokens = TOKEN.findall(text)
    places = [i for i, t in enumerate(tokens) if t.strip() and t[0] != "#"]
    for _ in range(rng.randint(1, 3)):
        i, j = rng.choice(places), rng.choice(places)
        match rng.randrange(4):
            case 0:
                tokens[i] = rng.choice(WORDS)
            case 1:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 2:
                tokens[i] += " " + tokens[i]
            case _:
                tokens[i] = tokens[j]
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(4))
def test_lowering_a_mutated_spec_never_raises(seed):
    rng = random.Random(seed)
    lowered = 0
    for _ in range(150):
        text = mutate(rng.choice([s for s in SPECS if s.strip()]), rng)
        source = Source("fuzz.chunk", text)
        report = Report(source)
        file = parse(source, report)
        program = lower(file, source, report)
        for d in report.diagnostics:
            assert d.span is None or d.span.end <= len(text)
            assert all(e.span.end <= len(text) for f in d.fixes for e in f.edits)
        if program is not None:
            dump_program(program)
            lowered += len(program.ops)
        ops = sum(isinstance(i, nodes.Op) for i in file.items)
        assert report.failed or ops == len(program.ops), text  # an op is left out with a reason only
    assert lowered > 10
