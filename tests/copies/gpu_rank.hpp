// A rank with a GPU: a process of its own with a communicator of the plugin `copies`. Ranks share GPUs where
// there are fewer.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <vector>

#include "group_member.hpp"
#include "mapped_memory.hpp"
#include "ranks.hpp"
#include "watch.hpp"

namespace prun::test {

// Returns how many GPUs there are, without any use of them in this process.
int count_gpus();

class GpuRank {
 public:
  // This is collective over `ranks`, of which `rank` is one.
  // `direct` says that messages may go right to where they belong; so many lanes push at most.
  GpuRank(const Rank& rank, std::int64_t buffer_bytes, std::int64_t memory_bytes, bool direct = false,
          std::size_t mesh = 0, std::int32_t lanes = 15);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  // Says whether other ranks have this GPU, too.
  bool is_shared() const { return shared_; }
  std::byte* memory() const { return memory_->data(); }
  std::int64_t memory_bytes() const { return memory_->bytes(); }
  copies::GroupMember& member() { return *member_; }
  void upload(std::byte* to, const void* from, std::size_t bytes) const;
  void download(void* to, const std::byte* from, std::size_t bytes) const;
  void start(const std::vector<CommOp>& ops) {
    watch_.begins("starts operations");
    member_->start(ops, stream_);
  }
  // Returns once all is done; asks check() meanwhile, as the executor does.
  void finish();
  // Returns once the stream has nothing left, whatever has become of the group.
  void drain();
  void run(const std::vector<CommOp>& ops) {
    watch_.begins("prepares operations");
    member_->prepare(ops);
    start(ops);
    finish();
  }

 private:
  bool is_done() const;

  bool shared_ = false;
  std::atomic<copies::GroupMember*> made_{nullptr};
  Watch watch_;
  std::unique_ptr<copies::Driver> driver_;
  std::unique_ptr<MappedMemory> memory_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<copies::GroupMember> member_;
};

}  // namespace prun::test
