"""The interpreter gives the right numbers, is gone afterwards, and leaves kernels fit for compilation."""

import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import interpreter as upstream
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.interp import Memory, interpreting
from chunkdsl.interp.assembly import UnknownAssembly

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def noise(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_bfloat16_rounds_once_per_operation_like_torch(kernels):
    x, y = noise(100, dtype=torch.bfloat16), noise(100, dtype=torch.bfloat16, seed=1)
    out = torch.zeros(100, dtype=torch.bfloat16)
    with interpreting() as interpreter:
        interpreter.run(kernels.add_bf16, (4,), x=x, y=y, out=out, n=100, BLOCK=32)
    assert torch.equal(out, (x * 4 + x * 1) + y)


def test_pointwise_functions(kernels):
    x, out = noise(64), torch.zeros(4, 64)
    with interpreting() as interpreter:
        interpreter.run(kernels.pointwise, (1,), x=x, out=out, BLOCK=64)
    torch.testing.assert_close(out, torch.stack([torch.erf(x), torch.exp(x), torch.sigmoid(x), torch.relu(x)]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dot_accumulates_in_float32(kernels, dtype):
    a, b, c = noise(32, 200, dtype=dtype), noise(200, 32, dtype=dtype, seed=1), torch.zeros(32, 32)
    with interpreting() as interpreter:
        sizes = dict(M=32, N=32, K=200, BM=16, BN=16, BK=16)
        interpreter.run(kernels.matmul, (2, 2), a=a, b=b, c=c, **sizes)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-5, atol=1e-4)


def test_host_and_device_descriptors(kernels):
    source, out = noise(32, 16), torch.zeros(32, 16)
    with interpreting() as interpreter:
        described = TensorDescriptor.from_tensor(source, [16, 16])
        arguments = dict(source=described, x=torch.ones(1), out=out, M=32, N=16, BM=16, BN=16)
        interpreter.run(kernels.through_descriptors, (1,), **arguments)
    assert torch.equal(out, source + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions(kernels, dtype):
    x, out = noise(4, 16, dtype=dtype), torch.zeros(8)
    total = torch.zeros(1, dtype=dtype)
    with interpreting() as interpreter:
        interpreter.run(kernels.row_statistics, (1,), x=x, out=out, ROWS=4, COLS=16)
        interpreter.run(kernels.generic_sum, (1,), x=x, out=total, BLOCK=16)
    torch.testing.assert_close(out[4:], x.float().amax(1))
    torch.testing.assert_close(out[:4], x.float().sum(1), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(total.float(), x[0].float().sum()[None], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype, largest", [(torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)])
def test_fp8_rounds_to_nearest_even_and_saturates(kernels, dtype, largest):
    x = torch.cat([noise(60) * 100, torch.tensor([1e9, -1e9, 0.0, 1.0625])])
    narrow, back = torch.zeros(64, dtype=dtype), torch.zeros(64, dtype=torch.bfloat16)
    with interpreting() as interpreter:
        interpreter.run(kernels.convert, (1,), x=x, out=narrow, BLOCK=64)
        interpreter.run(kernels.convert, (1,), x=narrow, out=back, BLOCK=64)
    assert torch.equal(narrow.float(), x.clamp(-largest, largest).to(dtype).float())
    assert torch.equal(back.float(), narrow.float())


def test_pointer_tables_and_atomics(kernels):
    parts = [noise(20, seed=s) for s in range(3)]
    table, out = torch.tensor([p.data_ptr() for p in parts]), torch.zeros(20)
    word, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    with interpreting() as interpreter:
        interpreter.run(kernels.table_sum, (1,), table=table, out=out, n=20, W=3, BLOCK=32)
        interpreter.run(kernels.atomics, (1,), word=word, out=seen, epoch=9)
    torch.testing.assert_close(out, sum(parts))
    assert (word.tolist(), seen.tolist()) == ([7], [0, 5, 9])


def test_assembly_statements_are_emulated_or_refused(kernels):
    word, out = torch.full((1,), 7, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    with interpreting() as interpreter:
        interpreter.run(kernels.assembly, (1,), word=word, out=out)
        with pytest.raises(UnknownAssembly, match=r"vote\.sync\.ballot"):
            interpreter.run(kernels.unknown_assembly, (1,), out=out)
    assert out.tolist() == [7, 1]


def test_assembly_loads_and_stores_words(kernels):
    word, out = torch.tensor([7, 0], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    with interpreting() as interpreter:
        interpreter.run(kernels.assembly_words, (1,), word=word, out=out)
    assert word.tolist() == out.tolist() == [7, 41]


def test_memory_sees_what_the_kernel_does(kernels):
    class Watch(Memory):
        def __init__(self):
            self.seen = []

        def load(self, addresses, mask, itemsize, volatile, bulk):
            self.seen.append(("load", int(mask.sum()), itemsize, bulk))

        def store(self, addresses, mask, itemsize, bulk):
            self.seen.append(("store", int(mask.sum()), itemsize, bulk))

        def atomic(self, operation, addresses, mask, itemsize, sem, scope, perform):
            self.seen.append((operation, sem, scope))
            return perform()

        def barrier(self):
            self.seen.append("barrier")

    watch = Watch()
    word, out = torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    x, source = torch.ones(1), torch.zeros(16, 16)
    with interpreting(watch) as interpreter:
        interpreter.run(kernels.atomics, (1,), word=word, out=out, epoch=1)
        described = TensorDescriptor.from_tensor(source, [16, 16])
        sizes = dict(M=10, N=16, BM=16, BN=16)
        interpreter.run(kernels.through_descriptors, (1,), source=described, x=x, out=source.clone(), **sizes)
    assert watch.seen == [
        ("add", "relaxed", "gpu"), ("store", 1, 4, False),
        ("cas", "acq_rel", "sys"), ("store", 1, 4, False),
        ("xchg", "release", "sys"), ("store", 1, 4, False),
        "barrier",
        ("load", 256, 4, True), ("load", 1, 4, False), ("store", 160, 4, True),
    ]  # fmt: skip


def state():
    """Everything that `interpreting` may touch."""
    holders = [tl, tl.core, tl.math, tl.tensor, tl.core.block_type, tl.dtype, tl.core.tensor_descriptor_base]
    holders += [upstream, upstream.ReduceOps, upstream.ScanOps, JITFunction, upstream.InterpretedFunction]
    return [dict(vars(h)) for h in holders] + [triton.knobs.runtime.interpret]


def test_everything_is_put_back_even_after_an_error(kernels):
    with interpreting():  # the first use may import lazily
        pass
    before, names = state(), set(vars(kernels))
    with pytest.raises(ZeroDivisionError), interpreting() as interpreter:
        interpreter.run(kernels.convert, (1,), x=torch.ones(16), out=torch.ones(16), BLOCK=16)
        raise ZeroDivisionError
    assert state() == before
    assert set(vars(kernels)) == names
    with pytest.raises(RuntimeError, match="outside of the scope"):
        kernels.scale(1, 2)


def test_blocks_do_not_nest():
    with interpreting(), pytest.raises(RuntimeError, match="nest"), interpreting():
        pass
    with interpreting():
        pass


def test_one_module_is_interpreted_and_compiled_in_either_order(kernels):
    def interpret():
        x, out = noise(16), torch.zeros(16, dtype=torch.float16)
        with interpreting() as interpreter:
            interpreter.run(kernels.convert, (1,), x=x, out=out, BLOCK=16)
        assert torch.equal(out, x.half())

    def compiled():
        signature = dict(x="*fp32", out="*fp16", BLOCK="constexpr")
        source = ASTSource(fn=kernels.convert, signature=signature, constexprs=dict(BLOCK=16))
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=1)).asm["ptx"]

    interpret()
    first = compiled()
    interpret()
    assert "cvt.rn.f16" in first
    assert compiled() == first


def test_missing_arguments_and_other_objects_are_refused(kernels):
    with interpreting() as interpreter:
        with pytest.raises(TypeError, match="missing a required argument: 'out'"):
            interpreter.run(kernels.convert, (1,), x=torch.ones(16), BLOCK=16)
        with pytest.raises(TypeError, match=r"not a @triton\.jit function"):
            interpreter.run(noise, (1,))


def test_the_compiler_that_is_first_used_inside_a_block_has_its_own_min():
    """Triton's code generator keeps what `min` means from when it is imported."""
    text = (
        "import triton.language as tl\n"
        "from chunkdsl.interp import interpreting\n"
        "with interpreting():\n"
        "    from triton.compiler.code_generator import CodeGenerator\n"
        "assert CodeGenerator.builtin_namespace['min'] is tl.core.builtin_min\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
