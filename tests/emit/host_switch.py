"""CUDA sources of small all-reduces in the switch, in bf16, as C++ for the CPU: every thread of all ranks is one of the
host's, and the switch adds in rank order. Not a model of memory, whose every access is ordered here: it shows which
addresses are touched, that all waits end, and the arithmetic."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

PRELUDE = r"""
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
struct Dim { int x; };
struct Block {
    std::barrier<> all;
    float parts[32], lanes[1024];
    std::atomic<int> no{0};
    explicit Block(int n) : all(n) {}
};
static thread_local Dim threadIdx, blockIdx, blockDim, gridDim;
static thread_local Block* block_of;
static char* memory[16];
static int ranks;
const unsigned long long MULTICAST = 1ull << 60;
static void __syncthreads() { block_of->all.arrive_and_wait(); }
static bool __syncthreads_and(bool yes) {
    if (!yes) block_of->no.fetch_add(1);
    __syncthreads();
    const bool all = block_of->no.load() == 0;
    __syncthreads();
    if (threadIdx.x == 0) block_of->no.store(0);
    __syncthreads();
    return all;
}
static float __shfl_xor_sync(unsigned, float value, int apart) {
    block_of->lanes[threadIdx.x] = value;
    __syncthreads();
    const float other = block_of->lanes[threadIdx.x ^ apart];
    __syncthreads();
    return other;
}
static unsigned long long nanoseconds_here() {
    std::this_thread::yield();
    return std::chrono::steady_clock::now().time_since_epoch().count();
}
static uint32_t __float_as_uint(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
template <class T> static std::atomic<T>& cell(const T* at) { return *(std::atomic<T>*)at; }
static uint16_t to_bf16(float x) { uint32_t b = __float_as_uint(x); return (b + 0x7fff + (b >> 16 & 1)) >> 16; }
static float of_bf16(uint16_t b) { return __uint_as_float((uint32_t)b << 16); }
static void load(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, const void* at) {
    const uint32_t* w = (const uint32_t*)at;
    a = cell(w).load(), b = cell(w + 1).load(), c = cell(w + 2).load(), d = cell(w + 3).load();
}
static void save(void* at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    uint32_t* w = (uint32_t*)at;
    cell(w).store(a), cell(w + 1).store(b), cell(w + 2).store(c), cell(w + 3).store(d);
}
static void load_reduce(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, unsigned long long at) {
    float sums[8] = {};
    for (int r = 0; r < ranks; ++r) {
        uint32_t w[4];
        load(w[0], w[1], w[2], w[3], memory[r] + (at - MULTICAST));
        for (int i = 0; i < 8; ++i) sums[i] += of_bf16(w[i / 2] >> 16 * (i % 2));
    }
    uint32_t* to[4] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; ++i) *to[i] = to_bf16(sums[2 * i]) | (uint32_t)to_bf16(sums[2 * i + 1]) << 16;
}
static void save_all(unsigned long long at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    for (int r = 0; r < ranks; ++r) save(memory[r] + (at - MULTICAST), a, b, c, d);
}
"""
FORMS = [
    ("multimem.ld_reduce", "load_reduce({})"), ("multimem.st", "save_all({})"),
    ("ld.relaxed.sys.global.v4", "load({})"), ("st.relaxed.sys.global.v4", "save({})"),
    ("ld.", "{0} = cell({1}).load()"), ("st.", "cell({0}).store({1})"),
    ("atom.", "{0} = {2}, cell({1}).compare_exchange_strong({0}, {3})"),
    ("mov.u64", "{0} = nanoseconds_here()"), ("fence", ""), ("cvt.rn.bf16", "{0} = to_bf16({1})"),
]  # fmt: skip


RUN = """
extern "C" void run_{name}(int world, int grid, int threads, {name}::u64* tensors, {name}::u64** held, int count,
                           int row, int cap, int flag_cap) {{
    using namespace {name};
    u64 *words = held[0], *arrived = held[1], *state = held[2], *record = held[3], *epochs = held[4];
    std::vector<std::thread> all;
    std::vector<std::unique_ptr<Block>> blocks;
    ranks = world;
    for (int r = 0; r < world; ++r) memory[r] = (char*)words[r];
    for (int r = 0; r < world; ++r)
        for (int b = 0; b < grid; ++b) {{
            Block* mine = blocks.emplace_back(new Block(threads)).get();
            for (int t = 0; t < threads; ++t)
                all.emplace_back([=] {{
                    threadIdx.x = t, blockIdx.x = b, blockDim.x = threads, gridDim.x = grid, block_of = mine;
                    u64* x = tensors + r * {count};
                    {kernel}({args}, (char*)words[r], MULTICAST, (u32*)arrived[r], arrived, (u32*)state[r], state,
                             (u32*)record[r], (u32*)epochs[r], 300000000000ull, world, r, count, row, cap, flag_cap,
                             0, 1);
                }});
        }}
    for (auto& t : all) t.join();
}}
"""


def compiled(folder: Path, sources: dict[str, tuple[str, str, int]]) -> ctypes.CDLL:
    """A library with `run_NAME` for each kernel: name -> (source, kernel, its tensors)."""
    parts = [PRELUDE]
    for name, (source, kernel, count) in sources.items():
        args = ", ".join(f"(char*)x[{i}]" for i in range(count))
        parts += [f"namespace {name} {{{host_source(source)}}}"]
        parts += [RUN.format(name=name, kernel=kernel, args=args, count=count)]
    (folder / "switch.cpp").write_text("\n".join(parts))
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-pthread", "-w", "-o", "switch.so", "switch.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(folder / "switch.so")


def host_source(source: str) -> str:
    """The same in C++: each asm statement as what it does."""
    source = source.replace("__shared__ float parts[32];", "float* parts = block_of->parts;").replace('extern "C" ', "")
    made, at = [], 0
    for start in (m.start() for m in re.finditer(r"\basm( volatile)?\(", source)):
        end = closing(source, start)
        made += [source[at:start], statement(source[start:end])]
        at = end
    return "".join([*made, source[at:]])


def closing(text: str, at: int) -> int:
    """Behind the bracket that closes the first one from `at` on."""
    depth, quoted = 0, False
    for i in range(text.index("(", at), len(text)):
        quoted ^= text[i] == '"'
        depth += 0 if quoted else (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i + 1
    raise ValueError(text[at : at + 80])


def statement(text: str) -> str:
    opcode = text[text.index('"') + 1 :]
    places = [m.end() for m in re.finditer(r'"=?[rlhf]"\(', text)]
    operands = [text[at : closing(text, at - 1) - 1] for at in places]
    form = next(f for start, f in FORMS if opcode.startswith(start))
    return form.format(", ".join(operands)) if form.count("{}") else form.format(*operands)
