"""One rank of test_training_example.py: `python resumed_runs.py --csv FILE ...`, as the program of the example.
Resumes from a checkpoint in several ways: as the program does, and with one part of the checkpoint left out. Losses
lie beside FILE, the part in front of its name."""

import functools
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import train_tiny_llm as program

WHOLE, PARTS = "whole", ("model", "optimizer", "draws")


class Lossy(program.Run):
    """A run whose checkpoint lacks a part: what it has itself stays."""

    part = WHOLE

    def state_dict(self):
        return {part: value for part, value in super().state_dict().items() if part != self.part}

    def load_state_dict(self, state):
        super().load_state_dict(super().state_dict() | state)


def run_each(train, args, on_ranks=program.on_ranks):
    def each(args, rank, device):
        codes = []
        for Lossy.part in (WHOLE, *PARTS):
            file = args.csv.with_name(f"{Lossy.part}-{args.csv.name}")
            codes.append(train(Namespace(**vars(args) | {"csv": file}), rank, device))
        return max(codes)

    return on_ranks(each, args)


if __name__ == "__main__":
    program.Run, program.on_ranks, program.load = Lossy, run_each, functools.cache(program.load)
    sys.exit(program.main())
