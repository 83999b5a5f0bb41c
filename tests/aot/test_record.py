"""The recording machine stands in for the real one and derives the signatures that Triton's JIT would."""

import inspect
import itertools
import resource

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.aot.record import PEER_STRIDE, RecordingMachine, blank, record_use
from chunkdsl.runtime.machine import Machine


def test_has_every_method_of_the_machine():
    def methods(kind):
        return {n: list(inspect.signature(f).parameters) for n, f in vars(kind).items() if inspect.isfunction(f)}

    recording = methods(RecordingMachine)
    for name, parameters in methods(Machine).items():
        if not name.startswith("_"):
            assert recording.get(name) == parameters, name
    real = {n for n in Machine.__init__.__code__.co_names if not n.startswith("_")}
    assert {"group", "rank", "world", "device", "sms", "target"} <= set(vars(RecordingMachine())) & real


def test_one_call_records_each_variant_once_at_production_size(reference):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    machine = RecordingMachine(1, 4, "sm_90")
    layer = reference.Layer(machine, 65536, 16384, 65536)
    x, w = blank((16384, 65536), torch.bfloat16), blank((16384, 65536), torch.bfloat16)
    assert layer(x, w).shape == (65536, 16384)
    layer(x, w)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024, "14 GB were touched"
    (use,) = machine.uses
    assert use.name == "gemm" and use.warps == 4 and use.stages == 3
    assert use.signature["x"] == "tensordesc<bf16[64, 64]>" and use.signature["y"] == "*bf16"
    assert use.signature["table"] == "*i64" and use.signature["M"] == "i32" and use.signature["limit"] == "i64"
    assert use.args["x"] == "descriptor bfloat16[65536, 65536]" and use.args["M"] == "65536"
    assert [kind for kind, _, _ in machine.log] == ["launch", "fork", "copy", "join"] * 2
    layer.tma = False
    layer(x, w)
    assert len(machine.uses) == 2


def test_memory_is_zeroed_aligned_and_apart():
    machine = RecordingMachine(2, 4)
    buffer = machine.symmetric("x", (128, 64), torch.bfloat16)
    assert buffer.addresses[2] == buffer.local.data_ptr() and buffer.table.tolist() == list(buffer.addresses)
    apart = sorted(buffer.addresses)
    assert all(b - a >= PEER_STRIDE for a, b in itertools.pairwise(apart))
    for tensor in (buffer.local, machine.zeros("z", (3,), torch.int32), machine.empty((2, 2), torch.float32)):
        assert not tensor.any() and tensor.data_ptr() % 16 == 0
    assert blank((0, 8), torch.int32).shape == (0, 8)
    machine.pinned("p", (1,), torch.int32)[0] = 7


def test_collectives_are_plausible():
    machine = RecordingMachine(0, 3)
    assert machine.vote("a") == ["a", "a", "a"]
    assert machine.gather(torch.ones(2, 5)).shape == (3, 2, 5)
    assert machine.total(torch.ones(2, 5)).shape == (2, 5)


@pytest.mark.parametrize(
    ("value", "kind"), [(True, "u1"), (2**40, "i64"), (7, "i32"), (1.5, "fp32"), (None, "constexpr")]
)
def test_plain_arguments(faults, value, kind):
    use = _use(faults, plain=value)
    assert use.signature["plain"] == kind


def test_specialises_like_the_jit(faults):
    use = _use(faults)
    index = {name: (i,) for i, name in enumerate(use.kernel.arg_names)}
    aligned = [["tt.divisibility", 16]]
    assert use.attrs[index["x"]] == aligned and use.attrs[index["count"]] == aligned
    assert use.signature["one"] == "constexpr" and use.constants[index["one"]] == 1
    assert use.constants[index["none"]] is None and use.constants[index["FORM"]] == "a"
    odd = _use(faults, x=blank((65,), torch.float32)[1:], count=17, one=2)
    assert not odd.attrs.get(index["x"]) and not odd.attrs.get(index["count"]) and odd.signature["one"] == "i32"
    assert odd.key != use.key and odd != use


def test_do_not_specialize_is_honoured(faults):
    def use(stride):
        args = {"x": blank((8,), torch.bfloat16), "y": blank((8,), torch.bfloat16), "table": blank((8,), torch.int64)}
        return record_use(faults.copy_rows, {**args, "stride": stride}, {"FORM": "bare"}, 4, 3)

    assert use(1).key == use(16).key == use(17).key and use(1) == use(16)
    assert use(2**40).key != use(1).key


def test_refuses_what_cannot_be_compiled(faults):
    with pytest.raises(TypeError, match="TRITON_INTERPRET"):
        record_use(faults.copy_rows.fn, {}, {}, 4, 3)
    with pytest.raises(TypeError):
        record_use(faults.copy_rows, {"x": 1}, {}, 4, 3)
    with pytest.raises(ValueError, match="known are sm_80"):
        RecordingMachine(target="sm_70")


def test_descriptors_keep_their_block_shape(faults):
    x = TensorDescriptor.from_tensor(blank((512, 256), torch.bfloat16), [128, 64])
    assert _use(faults, x=x).signature["x"] == "tensordesc<bf16[128, 64]>"


def _use(faults, **changes):
    args = {"x": blank((64,), torch.float32), "count": 32, "one": 1, "none": None, "flag": blank((4,), torch.int32)}
    args |= {"scale": 2.0, "plain": 3} | changes
    return record_use(faults.specialised, args, {"FORM": "a"}, 4, 3)
