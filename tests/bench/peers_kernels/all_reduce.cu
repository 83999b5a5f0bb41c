// TensorRT-LLM's all-reduce of flashinfer in the one form that is measured: bf16, two ranks, sums in f32, neither norm
// nor quantisation. flashinfer's own file makes all forms, which takes nvcc minutes; this calls the same launcher.
#include <string>

#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
#include "tvm_ffi_utils.h"

using namespace flashinfer::trtllm_allreduce_fusion;
using tvm::ffi::Optional;
using Maybe = Optional<TensorView>;
constexpr auto kPlain = AllReduceFusionPattern::kAllReduce;

void all_reduce(TensorView in, int64_t world, int64_t rank, int64_t tokens, int64_t width, TensorView workspace,
                bool dependent, bool one_shot, bool at_end, bool f32_sums, int64_t pattern, Maybe out, Maybe, Maybe,
                Maybe, Maybe, Maybe, Maybe, Optional<double>, Maybe, Optional<int64_t>, Optional<int64_t>,
                Optional<double>) {
  ffi::CUDADeviceGuard guard(in.device().device_id);
  TVM_FFI_ICHECK(encode_dlpack_dtype(in.dtype()) == bfloat16_code && world == 2 && f32_sums && out.has_value() &&
                 static_cast<AllReduceFusionPattern>(pattern) == kPlain)
      << "compiled for plain all-reduces of bf16 on two ranks, summed in f32";
  AllReduceFusionParams<__nv_bfloat16> params{};
  params.nranks = world;
  params.rank = rank;
  params.size = tokens * width;
  params.hidden_dim = width;
  params.workspace = reinterpret_cast<void**>(workspace.data_ptr());
  params.allreduce_in = in.data_ptr();
  params.allreduce_out = out.value().data_ptr();
  params.use_oneshot = one_shot;
  params.layout = QuantizationSFLayout::SWIZZLED_128x4;
  params.pattern = kPlain;
  params.trigger_completion_at_end = at_end;
  params.stream = get_stream(in.device());
  auto status = allreduce_fusion_kernel_launcher<kPlain, __nv_bfloat16, 2, true>(params, dependent);
  TVM_FFI_ICHECK(status == cudaSuccess) << cudaGetErrorString(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(trtllm_allreduce_fusion, all_reduce);
