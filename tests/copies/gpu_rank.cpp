#include "gpu_rank.hpp"

#include <chrono>
#include <thread>

#include "prun/error.hpp"

namespace prun::test {
namespace {

using cuda::check;

constexpr std::chrono::seconds limit{20};

// Sets what the device sets: streams that wait for each other need channels of their own.
int take_gpu(int rank) {
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  check(cudaSetDevice(rank % count), "cudaSetDevice");
  return count;
}

}  // namespace

int count_gpus() {
  const std::vector<Outcome> outcome = run_ranks(1, [](const Rank&) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    throw std::runtime_error(std::to_string(count));
  });
  return std::atoi(outcome.front().message.c_str());
}

GpuRank::GpuRank(const Rank& rank, std::int64_t buffer_bytes, std::int64_t memory_bytes, bool direct,
                 std::size_t mesh, std::int32_t lanes)
    : watch_("rank " + std::to_string(rank.number) + " of " + std::to_string(rank.size), limit, [this] {
        const copies::GroupMember* const member = made_.load();
        return member ? member->state() : std::string("the group is not made");
      }) {
  watch_.begins("makes a group");
  shared_ = take_gpu(rank.number) < rank.size;
  driver_ = std::make_unique<copies::Driver>();
  memory_ = std::make_unique<MappedMemory>(*driver_, memory_bytes);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  SocketExchange exchange(rank.meshes[mesh], rank.everyone(), rank.number);
  const ExchangeApi api = exchange.api();
  const CommGroup group{"test.group", rank.number, rank.size, &api};
  member_ = std::make_unique<copies::GroupMember>(
      *driver_, group, copies::Settings{buffer_bytes, buffer_bytes, 32, direct, lanes});
  made_ = member_.get();
  watch_.begins("attaches memory");
  member_->attach(memory_->data());
  watch_.begins("computes");
}

GpuRank::~GpuRank() {
  watch_.begins("detaches memory");
  member_->detach();
  watch_.begins("leaves the group");
  made_ = nullptr;
  member_.reset();
  watch_.begins("frees memory");
  cudaStreamDestroy(stream_);
}

void GpuRank::upload(std::byte* to, const void* from, std::size_t bytes) const {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "uploading");
  check(cudaStreamSynchronize(stream_), "uploading");
}

void GpuRank::download(void* to, const std::byte* from, std::size_t bytes) const {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "downloading");
  check(cudaStreamSynchronize(stream_), "downloading");
}

void GpuRank::finish() {
  watch_.begins("waits for operations");
  for (int round = 0; !is_done(); ++round) {
    member_->check();
    if (round > 1000) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  member_->check();
  watch_.begins("computes");
}

void GpuRank::drain() {
  watch_.begins("waits for what was to be released");
  while (!is_done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch_.begins("computes");
}

bool GpuRank::is_done() const {
  const cudaError_t status = cudaStreamQuery(stream_);
  if (status != cudaErrorNotReady) check(status, "running operations");
  return status == cudaSuccess;
}

}  // namespace prun::test
