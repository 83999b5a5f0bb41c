"""Coverage-guided fuzzing of the front end, by hand: `pip install atheris`, then

    PYTHONPATH=. python tests/fuzz/fuzz_specs.py -max_total_time=300 -timeout=10 -rss_limit_mb=2048 CORPUS

CORPUS is a folder that it fills; copy specs/*.chunk and tests/cases/*.chunk into it first, without user_gemm.chunk,
whose kernel is traced again for every change. With `-max_len=400` it is ten times as fast. What it finds goes into
tests/fuzz/seeds, which test_bytes.py runs.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["chunkdsl"]):
    from spec_probe import probe

if __name__ == "__main__":
    atheris.Setup(sys.argv, probe)
    atheris.Fuzz()
