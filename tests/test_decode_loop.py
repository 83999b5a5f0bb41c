"""examples/decode_loop.py runs on CPU processes: the module is built, its fallback taken, all kinds agree."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runtime"))
from forked_ranks import run_ranks  # noqa: E402

PROGRAM = ROOT / "examples" / "decode_loop.py"


def test_a_step_gives_the_same_with_every_kind_of_all_reduce(tmp_path):
    text = (ROOT / "specs" / "decode_all_reduce.chunk").read_text(encoding="utf-8")
    spec = tmp_path / "decode_all_reduce.chunk"
    spec.write_text(text.replace("dim H = 4096", "dim H = 64"), encoding="utf-8")
    arguments = ["--spec", spec, "--build", tmp_path, "--width", "128", "--tokens", "3", "--layers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = run_ranks(PROGRAM, 2, tmp_path, environment, arguments)
    assert [status for status, _, _ in ended] == [0, 0], [err[-3000:] for _, _, err in ended]
    said = "".join(out for _, out, _ in ended)
    assert "1 layers, hidden 64, MLP 128, 3 tokens, 2 ranks" in said
    assert "path     fallback, because there is no GPU" in said
    assert said.count("0.0e+00 from the library's result") == 3


def test_it_says_how_to_start_it():
    environment = {k: v for k, v in os.environ.items() if k != "RANK"} | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "torchrun" in done.stderr
