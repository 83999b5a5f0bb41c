"""Puts together the folder for `multi_gpu.py --peers`: packages of flashinfer, kraken and Helion, less what a run does
not read, and flashinfer's kernels for H200s, compiled. Nothing of it is kept in this repository.

    git clone https://github.com/meta-pytorch/kraken KRAKEN; git clone https://github.com/pytorch/helion HELION
    python tests/bench/peers_kit.py --kraken KRAKEN --helion HELION -o build/peers      # with nvcc 13.0: two minutes

Wheels come by pip, for the Python that is said, not the one that this runs on; with `--wheels DIR` from there. Neither
kraken nor the examples of Helion are packages.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS = Path(__file__).resolve().parent / "peers_kernels"
WHEELS = ("flashinfer-python==0.6.18.post1", "apache-tvm-ffi==0.1.15.post2", "helion==1.4.0", "filecheck==1.0.6")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64")
KRAKEN, HELION = "90a24c2", "v1.4.0"
UNREAD = ("flashinfer/data", "tvm_ffi/include", "tvm_ffi/3rdparty", "tvm_ffi/src")
# As flashinfer compiles them, for H200s.
FLAGS = """-std=c++17 -O3 -DNDEBUG -use_fast_math -Xfatbin=-compress-all --compress-mode=size --expt-relaxed-constexpr
-static-global-template-stub=false --compiler-options=-fPIC -gencode=arch=compute_90a,code=sm_90a
-D_GLIBCXX_USE_CXX11_ABI=1 -DPy_LIMITED_API=0x03090000 -DFLASHINFER_ENABLE_F16 -DFLASHINFER_ENABLE_BF16
-DFLASHINFER_ENABLE_FP8_E4M3 -DFLASHINFER_ENABLE_FP8_E5M2 -DFLASHINFER_ENABLE_FP8_E8M0 -DFLASHINFER_ENABLE_FP4_E2M1"""
FIRST = ("cccl/cub", "cccl/libcudacxx/include", "cccl/thrust")  # ahead of CUDA's own
OTHER = ("include", "csrc", "cutlass/include", "cutlass/tools/util/include", "spdlog/include")
DRIVER = "libcuda.so.1"  # of the machine that runs it; what is linked against here has its name and this one function
DRIVER_SOURCE = 'extern "C" int cuPointerGetAttribute(void*, int, unsigned long long) { return 0; }\n'


def fetch(folder: Path, python: str) -> None:
    """The wheels, by pip."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    command += ["--python-version", python, "--implementation", "cp", *(f"--platform={p}" for p in PLATFORMS), *WHEELS]
    subprocess.run(command, check=True)


def unpack(wheels: Path, folder: Path) -> None:
    found = sorted(wheels.glob("*.whl"))
    for wanted in WHEELS:
        name, version = wanted.replace("-", "_").split("==")
        fitting = [w for w in found if w.name.startswith(f"{name}-{version}-")]
        if not fitting:
            raise SystemExit(f"there is no wheel of {wanted} in {wheels}")
        with zipfile.ZipFile(fitting[0]) as archive:
            archive.extractall(folder)


def checked_out(clone: str, commit: str, paths: tuple[str, ...], folder: Path, versioned: str) -> None:
    """Folders of a clone as they are in a commit, which a file VERSION names."""
    packed = subprocess.run(["git", "-C", clone, "archive", commit, *paths], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    (folder / versioned / "VERSION").write_text(f"{commit}\n", encoding="utf-8")


def compile_kernels(folder: Path, cuda: str) -> None:
    """flashinfer's all-reduces, to where it looks for what is compiled ahead."""
    data, ffi = folder / "flashinfer/data", folder / "tvm_ffi"
    include = [f"-I{data / path}" for path in FIRST]
    for path in (ffi / "include", ffi / "3rdparty/dlpack/include", *(data / path for path in OTHER)):
        include += ["-isystem", str(path)]
    libraries = {
        "trtllm_comm": [KERNELS / "all_reduce.cu", KERNELS / "initialise.cu"],
        "vllm_comm": [data / "csrc/vllm_custom_all_reduce.cu"],
    }
    with tempfile.TemporaryDirectory(prefix="peers-") as work:
        source, driver = Path(work, "driver.cpp"), Path(work, "libcuda.so")
        source.write_text(DRIVER_SOURCE, encoding="utf-8")
        subprocess.run(["c++", "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-o", driver, source], check=True)

        def compiled(path: Path) -> str:
            made = f"{work}/{path.stem}.o"
            subprocess.run([f"{cuda}/bin/nvcc", *FLAGS.split(), *include, "-c", path, "-o", made], check=True)
            return made

        with ThreadPoolExecutor() as lanes:
            for name, paths in libraries.items():
                made = data / "aot" / name / f"{name}.so"
                made.parent.mkdir(parents=True)
                linked = ["-Wl,--strip-all", f"-L{work}", f"-L{cuda}/lib64", "-lcudart", "-lcuda"]
                subprocess.run(["c++", "-shared", "-o", made, *lanes.map(compiled, paths), *linked], check=True)


def strip(folder: Path) -> None:
    """Takes away what a run does not read; keeps what is compiled."""
    shutil.move(folder / "flashinfer/data/aot", folder / "aot")
    for path in UNREAD:
        shutil.rmtree(folder / path) if (folder / path).is_dir() else (folder / path).unlink()
    (folder / "flashinfer/data").mkdir()
    shutil.move(folder / "aot", folder / "flashinfer/data/aot")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kraken", required=True, help="a clone")
    parser.add_argument("--helion", required=True, help="a clone")
    parser.add_argument("--wheels", default="", help="a folder; default: pip fetches them")
    parser.add_argument("--python", default="3.12", help="of the machine with GPUs")
    parser.add_argument("--cuda", default="/usr/local/cuda")
    parser.add_argument("-o", dest="folder", default="build/peers")
    args = parser.parse_args(argv)
    folder = Path(args.folder).resolve()
    if folder.exists():
        raise SystemExit(f"{folder} is there already")
    with tempfile.TemporaryDirectory(prefix="peers-") as work:
        wheels, made = Path(args.wheels or f"{work}/wheels"), Path(work, "made")
        if not args.wheels:
            fetch(wheels, args.python)
        made.mkdir()
        unpack(wheels, made)
        checked_out(args.kraken, KRAKEN, ("kraken",), made, "kraken")
        checked_out(args.helion, HELION, ("examples/distributed", "examples/__init__.py"), made, "examples")
        compile_kernels(made, args.cuda)
        strip(made)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
