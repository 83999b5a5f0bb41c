// What flashinfer fills its buffers with before the first all-reduce of all_reduce.cu.
#include <cstdint>
#include <string>

#include "flashinfer/comm/trtllm_allreduce.cuh"
#include "tvm_ffi_utils.h"

void initialise(int64_t buffer, int64_t size, DLDataType dtype) {
  TVM_FFI_ICHECK(dtype == dl_float16) << "compiled for elements of two bytes";
  auto status = flashinfer::trtllm_allreduce::lamportInitialize<half>(
      reinterpret_cast<void*>(buffer), static_cast<size_t>(size), get_current_stream());
  TVM_FFI_ICHECK(status == cudaSuccess) << cudaGetErrorString(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(trtllm_lamport_initialize, initialise);
