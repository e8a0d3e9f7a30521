// Computes what a rank's collectives need: bytes sent, the plugin's memory, and pinned memory if they pass
// through the host. Example: a CPU comm plugin with GPUs needs pinned chunks of 4 MiB for an all-reduce, and
// a thread that copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/plan.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

namespace prun {

// ------------------------------------------------------------------- exchange needs

std::int32_t place_among(const std::vector<int>& members, std::int64_t rank);

// Returns true if the plugin moves host memory only, and the device's memory is not the host's.
bool is_staged(const DeviceInfo& device, const CommInfo& comm);
// A queue's pinned memory, and whether it needs a thread to copy chunks.
struct StagingNeeds {
  std::int64_t bytes = 0, threads = 0;
};
StagingNeeds staging_needs(const Plan& plan, std::size_t queue, std::int64_t members);

// Returns the bytes that a rank sends in a step on a queue, as its comm plugin will count them, and needs of
// the largest collective: a queue runs one at a time.
CommNeeds planned_needs(const Mesh& mesh, const Plan& plan, std::int64_t rank, CommInterface& comm,
                        std::size_t queue, bool staged = false);

// ------------------------------------------------------------------- staged chunks
// Lets a comm plugin for host memory serve a device whose memory only the device reaches: operations pass
// through pinned memory in chunks, so that copies and network transfers overlap. Example: an all-reduce of 10
// MiB has chunks of 4, 4 and 2 MiB: while one is sent the next is copied.

// Divides an operation along the elements of each of its parts, in the same way on all members.
class StagedChunks {
 public:
  StagedChunks(const CommOp& op, std::int64_t members);

  std::int64_t count() const { return count_; }
  // Returns those of a part.
  std::int64_t elements(std::int64_t chunk) const {
    return std::min(elements_, op_.count - chunk * elements_);
  }
  // Returns the pinned memory that suffices for any chunk.
  std::int64_t bytes() const;
  // Returns a chunk's operation in pinned memory, in place if the full one is.
  CommOp at(std::int64_t chunk, std::byte* pinned) const;

  // Calls body(device bytes, pinned bytes, count) for each piece that a chunk reads; the next function does
  // so for each that it writes.
  template <class Body>
  void each_read(std::int64_t chunk, std::byte* pinned, Body&& body) const {
    each(chunk, op_.kind == CommKind::broadcast ? op_.out : op_.in, in_parts_,
         pinned + in_at(part_bytes(chunk)), body);
  }
  template <class Body>
  void each_written(std::int64_t chunk, std::byte* pinned, Body&& body) const {
    each(chunk, op_.out, out_parts_, pinned + out_at(part_bytes(chunk)), body);
  }

 private:
  std::int64_t part_bytes(std::int64_t chunk) const { return elements(chunk) * size_of(op_.dtype); }
  // Returns where input begins for parts of so many bytes; the next function: output.
  std::int64_t in_at(std::int64_t part) const;
  std::int64_t out_at(std::int64_t part) const;

  template <class Body>
  void each(std::int64_t chunk, const void* device, std::int64_t parts, std::byte* pinned,
            Body&& body) const {
    const std::int64_t bytes = part_bytes(chunk), size = size_of(op_.dtype);
    auto* const first = static_cast<std::byte*>(const_cast<void*>(device)) + chunk * elements_ * size;
    for (std::int64_t part = 0; part < parts; ++part)
      body(first + part * op_.count * size, pinned + part * bytes, bytes);
  }

  CommOp op_;
  std::int64_t in_parts_ = 0, out_parts_ = 0;
  std::int64_t own_ = -1;      // part of the larger buffer that is the smaller one; -1: separate
  std::int64_t elements_ = 0;  // of a part, in each chunk but the last
  std::int64_t count_ = 1;
};

// Pinned memory for any of a list of operations: slots of `bytes`, one for each chunk in flight.
struct StagingSlots {
  std::int64_t count = 1, bytes = 0;

  void take(const CommOp& op, std::int64_t members);
};

}  // namespace prun
