// Holds the communicator of a queue, and what its plugin must know of the plan before the first step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "prun/comm.hpp"

namespace prun {

// Holds the communicator of a queue, or nothing.
struct QueueComm {
  CommInterface* comm = nullptr;
  Communicator communicator = nullptr;
  bool enqueues = false;
  std::int64_t members = 1;
  bool staged = false;  // the plugin moves only host memory, and the device's is not
};

// Returns the queues by name. Work that takes all members of a communicator is done in the order of the
// queues' names on all ranks, so no two ranks wait for each other: a rank that is not here yet is at a queue
// of an earlier name.
std::vector<std::size_t> by_name(const std::vector<QueueInfo>& queues);

// Makes memory known to communicators, for as long as this lives.
class AttachedMemory {
 public:
  AttachedMemory() = default;
  ~AttachedMemory();
  AttachedMemory(const AttachedMemory&) = delete;
  AttachedMemory& operator=(const AttachedMemory&) = delete;

  // Attaches memory; this is collective. `ops` is what the queue exchanges in a step, within that memory.
  void attach(const QueueComm& queue, std::span<std::byte> memory, std::span<const CommOp> ops, void* stream);
  // Connects for operations in memory that the communicator knows.
  static void connect(const QueueComm& queue, std::span<const CommOp> ops, void* stream);

 private:
  std::vector<QueueComm> attached_;
};

// Returns the first operation of each kind, type, size and peer, alike on all that take part in it.
std::vector<CommOp> distinct(std::span<const CommOp> ops);

}  // namespace prun
