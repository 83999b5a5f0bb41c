"""CUDA C++ kernels of a generated module: compiled by NVRTC when an instance is made, loaded and launched through the
driver. Copied into modules that have such a kernel; importing one needs neither a GPU nor NVRTC.

Through ctypes: the C functions used here are of the stable interfaces of NVRTC (from CUDA 11.1 on) and of the driver,
whichever torch is there. torch's own `_compile_kernel` is private, so that any version may change it, and hands on
integers as 32 bits (2.13), which cuts a multicast address; `cuda.core` would be a dependency more, to be matched with
torch's CUDA.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os

import torch


def nvrtc_library():
    """NVRTC as torch has it loaded, or of the wheels beside it. OSError if there is none."""
    major = (torch.version.cuda or "13").split(".")[0]  # a newer one may make binaries that this driver does not take
    names = [f"libnvrtc.so.{major}"]
    parent = importlib.util.find_spec("nvidia")
    for folder in (parent and parent.submodule_search_locations) or ():
        wheels = glob.glob(os.path.join(folder, "*", "lib", "libnvrtc.so.1[23]"))
        names += sorted(wheels, key=lambda name: not name.endswith(major))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("there is no NVRTC: install nvidia-cuda-nvrtc-cu12, or the CUDA toolkit")


class CudaKernel:
    """The kernel `name` of a CUDA source without includes."""

    def __init__(self, name, source):
        self.name, self.source, self._function = name, source, None

    def compile(self, target):
        """(PTX text, binary) for `target`, such as "sm_90". OSError without NVRTC, RuntimeError with its log."""
        library, program = nvrtc_library(), ctypes.c_void_p()
        made = library.nvrtcCreateProgram(
            ctypes.byref(program), self.source.encode(), f"{self.name}.cu".encode(), 0, None, None
        )
        if made:
            raise RuntimeError(f"NVRTC failed with error {made}")
        try:
            options = [f"--gpu-architecture={target}".encode(), b"--std=c++17"]
            code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            if code:
                log = self._part(library, program, "ProgramLog").rstrip(b"\0").decode()
                raise RuntimeError(f"{self.name} does not compile for {target}:\n{log}")
            text = self._part(library, program, "PTX").rstrip(b"\0").decode()
            return text, self._part(library, program, "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    @staticmethod
    def _part(library, program, what):
        size = ctypes.c_size_t()
        code = getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(1, size.value))
        code = code or getattr(library, f"nvrtcGet{what}")(program, text)
        if code:
            raise RuntimeError(f"NVRTC gives no {what}: error {code}")
        return text.raw

    def load(self, target):
        """Into the current context. Errors as `compile`, and RuntimeError where the driver refuses the binary."""
        driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        code = driver.cuModuleLoadData(ctypes.byref(module), self.compile(target)[1])
        code = code or driver.cuModuleGetFunction(ctypes.byref(function), module, self.name.encode())
        if code:
            raise RuntimeError(f"loading {self.name} failed with driver error {code}")
        self._launch, self._function = driver.cuLaunchKernel, function

    def launch(self, programs, threads, args, stream):
        """Start the kernel on a stream (its address). `args`: ctypes values in the kernel's order."""
        places = (ctypes.c_void_p * len(args))(*(ctypes.addressof(a) for a in args))
        code = self._launch(self._function, programs, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream), places, None)
        if code:
            raise RuntimeError(f"launching {self.name} failed with driver error {code}")
