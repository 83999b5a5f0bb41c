"""The programs in examples/ run as their docstrings say, on CPU processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "examples" / "tp_mlp_inference.py"
SMALL = {"16384": "128", "4096": "64", "14336": "128"}


def torchrun(*arguments, path, ranks=2):
    """Run the program under torchrun; `path` is PYTHONPATH."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    environment = {**os.environ, "PYTHONPATH": str(path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([*launch, *arguments], capture_output=True, text=True, timeout=240, env=environment)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(spec, folder of its module): the shipped spec with small sizes, built and run by the program itself."""
    folder = tmp_path_factory.mktemp("example")
    spec = folder / "tp_mlp.chunk"
    text = (ROOT / "specs" / "tp_mlp.chunk").read_text(encoding="utf-8")
    for large, little in SMALL.items():
        text = text.replace(large, little)
    spec.write_text(text, encoding="utf-8")
    done = torchrun("--spec", str(spec), "--build", str(folder), "--tokens", "5", path=ROOT)
    return done, folder


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    spec = importlib.util.spec_from_file_location("tp_mlp_inference", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shared(program):
    """examples/ranks.py, as the program imports it."""
    return sys.modules["ranks"]


def test_it_builds_runs_the_fallback_and_says_so(small):
    done, folder = small
    assert done.returncode == 0, done.stderr
    assert (folder / "tp_mlp.py").exists()
    assert "path     fallback, because there is no GPU" in done.stdout
    assert "2 on cpu, 5 tokens" in done.stdout and "agrees with torch" in done.stdout


def test_a_built_module_runs_where_chunkdsl_is_not_installed_and_a_wrong_one_is_found_out(small, tmp_path):
    """One run for both: the module's sum over ranks is spoilt, which must end in exit code 1."""
    blocked = tmp_path / "blocked" / "chunkdsl"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('chunkdsl is blocked')\n", encoding="utf-8")
    text = (small[1] / "tp_mlp.py").read_text(encoding="utf-8")
    right = "            dist.all_reduce(out, group=self.group)\n"
    assert text.count(right) == 1
    module = tmp_path / "tp_mlp.py"
    module.write_text(text.replace(right, right + "            out += 1\n"), encoding="utf-8")
    done = torchrun("--module", str(module), "--tokens", "1", path=blocked.parent)
    assert "DOES NOT AGREE" in done.stdout and "chunkdsl is blocked" not in done.stderr
    assert done.returncode != 0 and "exitcode  : 1 " in done.stderr


def test_it_wants_torchrun(program, capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["tp_mlp_inference.py"])
    assert program.main() == 2
    assert "torchrun" in capsys.readouterr().err


def test_it_refuses_to_start_on_gpus_with_multicast(shared):
    with pytest.raises(shared.CannotRun, match="TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0"):
        shared.join(True, {"RANK": "0"})
    assert shared.missing_on_cuda({"NCCL_NVLS_ENABLE": "0"}) == ["TORCH_SYMM_MEM_DISABLE_MULTICAST=1"]
    assert shared.missing_on_cuda(dict(shared.NEEDED_ON_CUDA)) == []


def test_shards_cover_a_tensor_once(program):
    torch = pytest.importorskip("torch")
    whole = torch.arange(10).reshape(5, 2)
    parts = [program.shard(whole, (("M", True), (2, False)), 4, rank) for rank in range(4)]
    assert [len(p) for p in parts] == [2, 2, 1, 0]
    assert torch.equal(torch.cat(parts), whole)
