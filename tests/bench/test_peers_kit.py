"""What the folder of peers is made of: wheels, clones at a commit, and what is compiled, less what nobody reads."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import multi_gpu
import peers_kit


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Arguments for wheels and clones of a file or two; instead of nvcc and the linker a file is written."""
    monkeypatch.setattr(peers_kit, "KRAKEN", "HEAD")
    monkeypatch.setattr(peers_kit, "HELION", "HEAD")
    monkeypatch.setattr(peers_kit, "compile_kernels", compiled)
    wheels, clone = tmp_path / "wheels", tmp_path / "clone"
    wheels.mkdir()
    for name, version in (wanted.replace("-", "_").split("==") for wanted in peers_kit.WHEELS):
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
            for path in ("flashinfer/comm.py", *(f"{unread}/text.h" for unread in peers_kit.UNREAD)):
                wheel.writestr(path, "")
    for path in ("kraken/comm.py", "examples/__init__.py", "examples/distributed/a.py", "other.py"):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text("")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", clone, *who, *command], check=True)
    folder = tmp_path / "build/peers"
    return ["--kraken", str(clone), "--helion", str(clone), "--wheels", str(wheels), "-o", str(folder)]


def compiled(folder, cuda):
    assert (folder / "tvm_ffi/include/text.h").exists(), "headers are there as long as something is compiled"
    (folder / "flashinfer/data/aot/some").mkdir(parents=True)
    (folder / "flashinfer/data/aot/some/some.so").write_text("compiled")


def test_the_folder_holds_what_a_run_reads(given, capsys):
    assert peers_kit.main(given) == 0
    folder = Path(given[-1])
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "dist-info" not in str(p)}
    assert files == {
        "flashinfer/comm.py", "flashinfer/data/aot/some/some.so", "kraken/comm.py", "kraken/VERSION",
        "examples/__init__.py", "examples/distributed/a.py", "examples/VERSION",
    }  # fmt: skip
    named = {**dict(w.replace("-", "_").split("==") for w in peers_kit.WHEELS), "kraken": "HEAD", "examples": "HEAD"}
    assert multi_gpu.versions(str(folder)) == named
    with pytest.raises(SystemExit, match="there already"):
        peers_kit.main(given)


def test_a_wheel_that_is_missing_leaves_no_folder(given):
    next(Path(given[5]).glob("helion*")).unlink()
    with pytest.raises(SystemExit, match=r"no wheel of helion==1\.4\.0"):
        peers_kit.main(given)
    assert not Path(given[-1]).exists()
