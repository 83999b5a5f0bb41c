"""`chunkdsl check` starts quickly. Calls are counted, as a clock tells more of the machine: a cold process makes 257000
calls in about 0.2 s of a quiet machine, imports from bytecode included."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECK = """import cProfile, pstats
profile = cProfile.Profile()
profile.enable()
from chunkdsl.cli import main
status = main(["check", "specs/tp_mlp.chunk"])
profile.disable()
assert status == 0
print(pstats.Stats(profile).total_calls)
"""


def calls(cache):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)}
    command = [sys.executable, "-c", CHECK]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def test_a_cold_check_does_little(tmp_path):
    calls(tmp_path)  # writes the bytecode
    assert 50_000 < calls(tmp_path) < 350_000
