// What prun asks of the driver's queues: that whatever it gives to a stream which waits finds room there, and
// holds up nothing that is given to another one. Otherwise what the first one waits for might never come.
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <vector>

#include "cuda/graph.hpp"
#include "cuda/stamp.hpp"
#include "plugins/device/cuda/room.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::queues_test {
namespace {

using cuda::Graph;
using cuda::Room;

class Queues : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU on this machine";
    // As the device cuda has it, before the driver is first asked for anything.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
    check_cuda(cudaHostAlloc(&pinned_, bytes, cudaHostAllocDefault));
    check_cuda(cudaMalloc(&device_, bytes));
    gate_ = new (pinned_) std::atomic<std::uint64_t>(0);
    time_ = reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(pinned_) + 64);
    look_up("cuStreamWaitValue64", wait_value_);
    look_up("cuStreamWriteValue64", write_value_);
    closed_ = make_stream();
    other_ = make_stream();
    cuda::write_time(time_, closed_);  // loads its kernel
    check_cuda(cudaStreamSynchronize(closed_));
  }
  void TearDown() override {
    if (!pinned_) return;
    *gate_ = 1;
    check_cuda(cudaDeviceSynchronize());
    for (cudaStream_t stream : streams_) check_cuda(cudaStreamDestroy(stream));
    check_cuda(cudaFreeHost(pinned_));
    check_cuda(cudaFree(device_));
  }

  cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return streams_.emplace_back(stream);
  }
  void close() { ASSERT_EQ(wait_value_(closed_, address(gate_), 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS); }
  static CUdeviceptr address(void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

  // Whether it ends while the stream waits. The gate opens in any case, so that it does end.
  bool ends(const std::function<void()>& call) {
    auto result = std::async(std::launch::async, call);
    const bool ended = result.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    if (!ended) *gate_ = 1;
    result.get();
    return ended;
  }

  // Works of the kinds that other streams and threads have meanwhile.
  void expect_others_go_on() {
    const auto through = [this](auto&& enqueue) {
      return [this, enqueue] {
        enqueue(other_);
        check_cuda(cudaStreamSynchronize(other_));
      };
    };
    EXPECT_TRUE(ends(through([this](cudaStream_t stream) { cuda::write_time(time_, stream); })))
        << "a kernel";
    EXPECT_TRUE(ends(through([this](cudaStream_t stream) {
      ASSERT_EQ(write_value_(stream, address(time_), 7, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
    }))) << "a counter";
    EXPECT_TRUE(ends(through([this](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(device_, pinned_, bytes, cudaMemcpyHostToDevice, stream));
    }))) << "a copy to the device";
    EXPECT_TRUE(ends([this] {
      check_cuda(cudaMemcpy(pinned_copy(), device_, bytes / 2, cudaMemcpyDefault));
    })) << "a copy to the host";
  }
  void* pinned_copy() const { return static_cast<std::byte*>(pinned_) + bytes / 2; }

  static constexpr std::size_t bytes = 1 << 20;
  void *pinned_ = nullptr, *device_ = nullptr;
  std::atomic<std::uint64_t>* gate_ = nullptr;
  std::uint64_t* time_ = nullptr;
  cudaStream_t closed_ = nullptr, other_ = nullptr;
  decltype(&cuStreamWaitValue64) wait_value_ = nullptr;
  decltype(&cuStreamWriteValue64) write_value_ = nullptr;

 private:
  template <class Function>
  static void look_up(const char* name, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    function = reinterpret_cast<Function>(found);
  }

  std::vector<cudaStream_t> streams_;
};

// As many as prun ever gives to a queue that may wait.
TEST_F(Queues, CommandsOfEveryKindFindRoomAndHoldNobodyUp) {
  const Graph graph(closed_, [this] {
    for (int i = 0; i < 40; ++i) cuda::write_time(time_, closed_);
  });
  check_cuda(cudaStreamSynchronize(closed_));
  using Give = std::function<void()>;
  const Give kernel = [this] { cuda::write_time(time_, closed_); },
             copy =
                 [this] {
                   check_cuda(cudaMemcpyAsync(device_, pinned_, 4096, cudaMemcpyHostToDevice, closed_));
                 },
             move =
                 [this] {
                   check_cuda(cudaMemcpyAsync(device_, static_cast<std::byte*>(device_) + 65536, 65536,
                                              cudaMemcpyDeviceToDevice, closed_));
                 },
             clear = [this] { check_cuda(cudaMemsetAsync(device_, 0, 65536, closed_)); }, counter = [this] {
               ASSERT_EQ(write_value_(closed_, address(time_), 1, CU_STREAM_WRITE_VALUE_DEFAULT),
                         CUDA_SUCCESS);
             };
  // A benched step has a kernel that notes the time behind each work: kinds then take turns.
  int turn = 0;
  const auto in_turn = [&turn, &kernel](const Give& other) -> Give {
    return [&turn, &kernel, &other] { ++turn % 2 ? kernel() : other(); };
  };
  const std::pair<const char*, Give> kinds[] = {{"kernels", kernel},
                                                {"graphs", [&] { graph.run(closed_); }},
                                                {"copies", copy},
                                                {"counters", counter},
                                                {"kernels and copies in turn", in_turn(copy)},
                                                {"kernels and moves in turn", in_turn(move)},
                                                {"kernels and clearings in turn", in_turn(clear)},
                                                {"kernels and counters in turn", in_turn(counter)}};
  for (const auto& [name, give] : kinds) {
    SCOPED_TRACE(name);
    *gate_ = 0;
    close();
    EXPECT_TRUE(ends([&give = give] {
      for (std::int64_t i = 0; i < Room::most; ++i) give();
    }));
    expect_others_go_on();
    EXPECT_EQ(cudaStreamQuery(closed_), cudaErrorNotReady);
    *gate_ = 1;
    check_cuda(cudaStreamSynchronize(closed_));
  }
}

// Of many pieces of work, each is a graph of its own.
TEST_F(Queues, ManyGraphsOfKernelsThatWaitHoldNobodyUp) {
  std::vector<std::unique_ptr<Graph>> graphs;
  for (int i = 0; i < 128; ++i)
    graphs.push_back(std::make_unique<Graph>(closed_, [this] {
      for (int j = 0; j < 40; ++j) cuda::write_time(time_, closed_);
    }));
  check_cuda(cudaStreamSynchronize(closed_));
  close();
  EXPECT_TRUE(ends([&] {
    for (const auto& graph : graphs) graph->run(closed_);
  }));
  expect_others_go_on();
  EXPECT_EQ(cudaStreamQuery(closed_), cudaErrorNotReady);
}

TEST_F(Queues, WhatIsMoreThanKernelsIsFound) {
  EXPECT_TRUE(cuda::enqueues_kernels_alone(closed_, [this] { cuda::write_time(time_, closed_); }));
  EXPECT_FALSE(cuda::enqueues_kernels_alone(closed_, [this] {
    cuda::write_time(time_, closed_);
    check_cuda(cudaMemsetAsync(device_, 0, 4096, closed_));
  }));
  EXPECT_FALSE(cuda::enqueues_kernels_alone(closed_, [this] {
    check_cuda(
        cudaMemcpyAsync(device_, static_cast<std::byte*>(device_) + 4096, 4096, cudaMemcpyDefault, closed_));
  }));
}

}  // namespace
}  // namespace prun::test::queues_test
