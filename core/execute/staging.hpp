// Exchanges memory that only a device reaches by a comm plugin that moves the host's, through pinned memory.
// A chunk of a large exchange travels while a thread copies the next one there and the previous one back.
#pragma once

#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "execute/device_memory.hpp"
#include "execute/ticket.hpp"
#include "plan/staged_chunks.hpp"

namespace prun {

class Staging {
 public:
  // Stages the operations of a queue, which has one under way at a time. The device must outlive it.
  Staging(DeviceInterface& device, std::string_view queue, std::span<const CommOp> ops, std::int64_t members);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Returns the pinned memory; the next function returns the operations that are done there.
  std::span<std::byte> memory() const { return memory_.bytes(); }
  std::vector<CommOp> operations(std::span<const CommOp> ops) const;

  // Carries one of them out: wire(operation in the pinned memory) does each chunk.
  template <class Wire>
  Status exchange(const CommOp& op, Wire&& wire) {
    const StagedChunks chunks(op, members_);
    if (chunks.count() == 1) {
      Status status = bring(chunks, 0);
      if (status.ok()) status = wire(chunks.at(0, slot(0)));
      return status.ok() ? take(chunks, 0) : status;
    }
    begin(chunks);
    Status status;
    for (std::int64_t i = 0; i < chunks.count() && may_travel(i); ++i) {
      status = wire(chunks.at(i, slot(i)));
      has_travelled(i, status);
      if (!status.ok()) break;
    }
    const Status copied = end();
    return status.ok() ? copied : status;
  }

 private:
  std::byte* slot(std::int64_t chunk) const { return memory_.data() + chunk % slots_.count * slots_.bytes; }
  // Copies what a chunk reads into its slot; the next function copies back what it wrote.
  Status bring(const StagedChunks& chunks, std::int64_t chunk) const;
  Status take(const StagedChunks& chunks, std::int64_t chunk) const;

  // The thread that calls exchange() runs these, for chunks of one operation after the other.
  void begin(const StagedChunks& chunks);
  bool may_travel(std::int64_t chunk);
  void has_travelled(std::int64_t chunk, const Status& status);
  Status end();
  // The copying thread runs these.
  void copy_all();
  void copy(const StagedChunks& chunks);

  DeviceInterface& device_;
  const std::int64_t members_;
  const StagingSlots slots_;
  Pinned memory_;

  // Holds tickets of operations, and of chunks of all of them.
  struct Progress {
    Counter counter{0};
    Ticket ticket{counter, false};
  };
  Progress asked_, brought_, travelled_, done_;
  std::uint64_t operations_ = 0, chunks_before_ = 0;
  const StagedChunks* chunks_ = nullptr;  // chunks of the operation under way
  std::atomic<bool> given_up_ = false;    // set if it, or all of them, gave up: nothing more is copied
  Status status_;                         // status of the copies
  std::thread copier_;                    // runs if there are chunks
};

}  // namespace prun
