// For tests of matrix products: cuBLASLt and a workspace.
#pragma once

#include <optional>

#include "cuda/gemm.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test {

using cuda::Product;
using cuda::text_of;

class GemmTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    gemm_.emplace();
    workspace_.emplace(cuda::gemm_workspace);
  }
  const cuda::Gemm& gemm() const { return *gemm_; }
  void* workspace() const { return workspace_->data(); }

 private:
  std::optional<cuda::Gemm> gemm_;
  std::optional<DeviceWorkspace> workspace_;
};

}  // namespace prun::test
