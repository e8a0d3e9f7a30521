#include "attention/cuda_cudnn.hpp"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <future>

#include "attention/cuda_pieces.hpp"
#include "tests/cuda/attention_case.hpp"

namespace prun::test::attention_cudnn_test {
namespace {

using cuda::AttentionLayout;
using cuda::AttentionShape;

AttentionLayout layout_of(const AttentionShape& shape, bool packed) {
  const cuda::HeadStrides apart = cuda::head_strides(shape, shape.queries);
  if (!packed) return {shape, apart, cuda::head_strides(shape, 1), cuda::head_strides(shape, 1), apart};
  const cuda::HeadStrides all = cuda::head_strides(shape, shape.queries + 2);
  return {shape, all, all, all, apart};
}

// ---------------------------------------------------------------- what needs no GPU
TEST(CudnnPieces, GroupsAreSamplesWhereQueriesHaveNoStride) {
  const AttentionShape grouped = {4, 256, 2, 3, 64}, plain = {4, 256, 6, 1, 64};
  const auto apart = cuda::cudnn_pieces(layout_of(grouped, false));
  EXPECT_FALSE(apart.by_group);
  EXPECT_EQ(apart.samples, 4);
  const auto packed = cuda::cudnn_pieces(layout_of(grouped, true));
  EXPECT_TRUE(packed.by_group);
  EXPECT_EQ(packed.samples, 1);
  EXPECT_EQ(packed.heads, 2);
  const auto multi_head = cuda::cudnn_pieces(layout_of(plain, true));
  EXPECT_FALSE(multi_head.by_group);
  EXPECT_EQ(multi_head.samples, 4);
}

// The figures are what cuDNN 9.14, 9.19 and 9.28 ask for on an H200.
TEST(CudnnPieces, WorkspaceIsWhatCudnnNeedsAndBounded) {
  struct Figure {
    AttentionShape shape;
    bool deterministic;
    std::int64_t samples, heads, bytes;
  };
  const Figure figures[] = {
      {{64, 1024, 12, 1, 64}, false, 64, 12, 204472576}, {{64, 1024, 12, 1, 64}, true, 16, 12, 403439872},
      {{8, 1024, 4, 7, 128}, false, 8, 4, 235798784},    {{2, 77, 2, 1, 40, false}, true, 2, 2, 132560},
      {{2, 8192, 8, 4, 128}, false, 1, 8, 269484288},    {{1, 4096, 8, 4, 128}, true, 1, 2, 285344000}};
  for (const Figure& f : figures) {
    SCOPED_TRACE(text_of(f.shape) + (f.deterministic ? ", deterministic" : ""));
    const AttentionLayout layout = layout_of(f.shape, false);
    const auto pieces = cuda::cudnn_backward_pieces(layout, f.deterministic);
    EXPECT_EQ(pieces.samples, f.samples);
    EXPECT_EQ(pieces.heads, f.heads);
    const std::int64_t bytes = cuda::cudnn_backward_workspace(layout, f.deterministic);
    EXPECT_GE(bytes, f.bytes);
    EXPECT_LE(bytes, f.bytes + (64 << 10));
  }
}

TEST(CudnnPieces, WhatCudnnCannotTakeIsRefusedWithAReason) {
  if (const std::string absence = cuda::cudnn_absence(); !absence.empty()) GTEST_SKIP() << absence;
  EXPECT_EQ(cuda::cudnn_refusal(layout_of({2, 9, 2, 3, 256}, true)), "");
  EXPECT_NE(cuda::cudnn_refusal(layout_of({2, 9, 2, 3, 257}, true)).find("not 257"), std::string::npos);
  EXPECT_NE(cuda::cudnn_refusal(layout_of({2, 9, 2, 3, 12}, true)).find("not 12"), std::string::npos);
  EXPECT_NE(cuda::cudnn_refusal(layout_of({2, 1, 2, 3, 64}, true)).find("two positions"), std::string::npos);
  AttentionLayout odd = layout_of({2, 9, 2, 3, 64}, false);
  odd.q.seq += 4;
  EXPECT_NE(cuda::cudnn_refusal(odd).find("16 bytes"), std::string::npos);
}

// ---------------------------------------------------------------- what needs one
class CudnnAttention : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    try {
      cudnn_ = std::make_unique<cuda::CudnnAttention>();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  template <class T>
  void forward(AttentionOnDevice<T>& device, const AttentionLayout& layout) {
    const cuda::CudnnPlan plan = cudnn_->prepare(layout, nullptr);
    const DeviceWorkspace workspace(plan.workspace());
    cudnn_->run(plan, device.forward(workspace.data()));
  }
  template <class T>
  void backward(AttentionOnDevice<T>& device, const AttentionLayout& layout, bool deterministic) {
    const cuda::CudnnPlan plan = cudnn_->prepare_backward(layout, deterministic, nullptr);
    const DeviceWorkspace workspace(plan.workspace());
    cudnn_->run(plan, device.backward(workspace.data()));
  }

  std::unique_ptr<cuda::CudnnAttention> cudnn_;
};

const AttentionShape shapes[] = {{2, 128, 3, 1, 64},
                                 {2, 130, 2, 3, 64},
                                 {1, 200, 2, 2, 128, false},
                                 {2, 77, 2, 1, 40},
                                 {1, 513, 1, 1, 256},
                                 {2, 100, 2, 2, 192},
                                 {3, 33, 1, 5, 8, false},
                                 {1, 300, 2, 7, 128},
                                 {2, 2, 2, 2, 16},
                                 {2, 130, 2, 3, 64, true, 40},
                                 {1, 300, 2, 7, 128, true, 100},
                                 {1, 513, 1, 1, 256, true, 64},
                                 {2, 128, 3, 1, 64, true, 128}};

TEST_F(CudnnAttention, ForwardAsOurKernels) {
  for (const AttentionShape& shape : shapes) {
    const AttentionReference<bf16> want = by_own_kernels<bf16>(shape);
    for (bool packed : {false, true}) {
      SCOPED_TRACE(text_of(shape) + (packed ? ", packed" : ", apart"));
      AttentionOnDevice<bf16> got(want, packed);
      forward(got, layout_of(shape, packed));
      expect_rows_close(got.y(), want.y, shape.head_dim, "y");
      expect_close(got.lse(), want.lse.numbers(), 1e-3, "lse");
    }
  }
}

TEST_F(CudnnAttention, BackwardAsOurKernels) {
  for (const AttentionShape& shape : shapes) {
    const AttentionReference<bf16> want = by_own_kernels<bf16>(shape);
    for (bool packed : {false, true})
      for (bool deterministic : {false, true}) {
        SCOPED_TRACE(text_of(shape) + (packed ? ", packed" : ", apart") +
                     (deterministic ? ", deterministic" : ""));
        AttentionOnDevice<bf16> got(want, packed);
        backward(got, layout_of(shape, packed), deterministic);
        expect_gradients_close(got, want);
      }
  }
}

// Three bits more than bf16 has.
TEST_F(CudnnAttention, InFp16AsOurKernels) {
  for (const AttentionShape& shape : shapes) {
    const AttentionReference<f16> want = by_own_kernels<f16>(shape);
    for (bool packed : {false, true}) {
      SCOPED_TRACE(text_of(shape) + (packed ? ", packed" : ", apart"));
      AttentionLayout layout = layout_of(shape, packed);
      layout.type = DType::f16;
      AttentionOnDevice<f16> got(want, packed);
      forward(got, layout);
      expect_rows_close(got.y(), want.y, shape.head_dim, "y", 0.005);
      expect_close(got.lse(), want.lse.numbers(), 1e-3, "lse");
      AttentionOnDevice<f16> gradients(want, packed);
      backward(gradients, layout, false);
      expect_gradients_close(gradients, want, 0.005);
    }
  }
}

// Enough blocks for sums to come in another order where nothing holds them.
TEST_F(CudnnAttention, DeterministicGivesTheSameBitsEveryTime) {
  const AttentionShape shape = {4, 1024, 4, 2, 64};
  const AttentionReference<bf16> reference = by_own_kernels<bf16>(shape);
  std::vector<Value> first;
  for (int turn = 0; turn < 3; ++turn) {
    AttentionOnDevice<bf16> device(reference, false);
    forward(device, layout_of(shape, false));
    backward(device, layout_of(shape, false), true);
    const std::vector<Value> results = {device.y(), device.lse(), device.dq(), device.dk(), device.dv()};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].bytes(), first[i].bytes()) << "result " << i << ", turn " << turn;
  }
}

TEST_F(CudnnAttention, PiecesOfABatchAndOfItsHeads) {
  const AttentionShape shape = {2, 8192, 4, 1, 64};
  const auto pieces = cuda::cudnn_backward_pieces(layout_of(shape, true), true);
  ASSERT_EQ(pieces.samples, 1);
  ASSERT_EQ(pieces.heads, 2);
  const AttentionReference<bf16> want = by_own_kernels<bf16>(shape);
  AttentionOnDevice<bf16> got(want, true);
  backward(got, layout_of(shape, true), true);
  expect_gradients_close(got, want);
}

// Until the number there is one.
void hold(cudaStream_t stream, void* number) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(
      cudaGetDriverEntryPointByVersion("cuStreamWaitValue64", &found, 12000, cudaEnableDefault, &result));
  ASSERT_TRUE(found);
  ASSERT_EQ(reinterpret_cast<decltype(&cuStreamWaitValue64)>(found)(
                stream, reinterpret_cast<CUdeviceptr>(number), 1, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
}

// Whoever feeds a queue gives it calls while it waits for others. The stream has another priority than what
// libraries take for their own.
TEST_F(CudnnAttention, ACallIsGivenToAStreamThatWaits) {
  const AttentionReference<bf16> reference({2, 256, 2, 2, 64});
  AttentionOnDevice<bf16> device(reference, false);
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  void* pinned = nullptr;
  check_cuda(cudaHostAlloc(&pinned, sizeof(std::uint64_t), cudaHostAllocDefault));
  auto& opened = *new (pinned) std::atomic<std::uint64_t>(0);
  bool given = false;
  {
    const cuda::CudnnPlan plan = cudnn_->prepare(layout_of(reference.shape, false), stream);
    const DeviceWorkspace workspace(plan.workspace());
    hold(stream, pinned);
    auto call = std::async(std::launch::async, [&] { cudnn_->run(plan, device.forward(workspace.data())); });
    given = call.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    opened = 1;
    call.get();
    check_cuda(cudaStreamSynchronize(stream));
  }
  EXPECT_TRUE(given);
  expect_rows_close(device.y(), by_own_kernels<bf16>(reference.shape).y, reference.shape.head_dim, "y");
  cudnn_->forget(stream);
  check_cuda(cudaFreeHost(pinned));
  check_cuda(cudaStreamDestroy(stream));
}

// What a call needs is loaded when it is prepared.
TEST_F(CudnnAttention, RunsTakeNoMemoryOfTheDevice) {
  const AttentionReference<bf16> reference({2, 256, 2, 2, 64});
  AttentionOnDevice<bf16> device(reference, false);
  const AttentionLayout layout = layout_of(reference.shape, false);
  const cuda::CudnnPlan forward = cudnn_->prepare(layout, nullptr),
                        backward = cudnn_->prepare_backward(layout, true, nullptr);
  const DeviceWorkspace workspace(std::max(forward.workspace(), backward.workspace()));
  const auto free_bytes = [] {
    std::size_t free = 0, all = 0;
    check_cuda(cudaDeviceSynchronize());
    check_cuda(cudaMemGetInfo(&free, &all));
    return free;
  };
  const std::size_t before = free_bytes();
  cudnn_->run(forward, device.forward(workspace.data()));
  cudnn_->run(backward, device.backward(workspace.data()));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(CudnnAttention, RefusesACallThatItWasNotPreparedFor) {
  const AttentionReference<bf16> reference({1, 16, 1, 1, 16});
  AttentionOnDevice<bf16> device(reference, true);
  const cuda::CudnnPlan apart = cudnn_->prepare(layout_of(reference.shape, false), nullptr);
  EXPECT_THROW(cudnn_->run(apart, device.forward(nullptr)), Error);
  EXPECT_THROW(cudnn_->run(apart, device.backward(nullptr)), Error);
}

}  // namespace
}  // namespace prun::test::attention_cudnn_test
