// Lets a comm plugin for host memory serve a device whose memory only the device reaches: operations pass
// through pinned memory in chunks, so that copies and network transfers overlap. Example: an all-reduce of 10
// MiB has chunks of 4, 4 and 2 MiB: while one is sent the next is copied.
#pragma once

#include <algorithm>
#include <cstddef>

#include "prun/comm.hpp"

namespace prun {

// Cuts an operation along the elements of each of its parts; all members cut alike.
class StagedChunks {
 public:
  StagedChunks(const CommOp& op, std::int64_t members);

  std::int64_t count() const { return count_; }
  // Returns the elements of a part.
  std::int64_t elements(std::int64_t chunk) const {
    return std::min(elements_, op_.count - chunk * elements_);
  }
  // Returns the bytes of pinned memory that suffice for any chunk.
  std::int64_t bytes() const;
  // Returns the operation of a chunk there: it is in place where the whole operation is.
  CommOp at(std::int64_t chunk, std::byte* pinned) const;

  // Calls body(bytes of the device, bytes there, how many) for each piece that a chunk reads; the next
  // function does so for each that it writes.
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
  // Returns where input begins, if a part has so many bytes; the next function returns where output begins.
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
  std::int64_t own_ = -1;      // part of the larger side that is the smaller one; -1: they lie apart
  std::int64_t elements_ = 0;  // elements of a part, in each chunk but the last
  std::int64_t count_ = 1;
};

// Describes pinned memory for any of a list of operations: it has as many slots as chunks are there at a
// time, of `bytes` each.
struct StagingSlots {
  std::int64_t count = 1, bytes = 0;

  void take(const CommOp& op, std::int64_t members);
};

}  // namespace prun
