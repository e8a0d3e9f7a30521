// Describes tensors to the driver for copies of boxes.
#include "cuda/tensor_map.hpp"

#include <cuda_runtime.h>

#include "cuda/check.hpp"
#include "prun/error.hpp"

namespace prun::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode look_up() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
        "cuTensorMapEncodeTiled");
  PRUN_CHECK(result == cudaDriverEntryPointSuccess && found, "the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(found);
}

}  // namespace

CUtensorMap panels_of(const bf16* data, std::int64_t columns, std::int64_t rows, std::int64_t planes,
                      int box_rows) {
  static const Encode encode = look_up();
  const auto bytes = [](std::int64_t count) { return static_cast<cuuint64_t>(count) * sizeof(bf16); };
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                                static_cast<cuuint64_t>(planes)};
  const cuuint64_t strides[] = {bytes(columns), bytes(rows * columns)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bf16*>(data), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  PRUN_CHECK(result == CUDA_SUCCESS, "a tensor of ", planes, " x ", rows, " x ", columns,
             " cannot be copied in boxes: error ", static_cast<int>(result), " of the driver");
  return map;
}

}  // namespace prun::cuda
