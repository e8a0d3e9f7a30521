// Says where messages lie in the buffers of a group's members, how exchanges are cut, and what they send.
#pragma once

#include <algorithm>

#include "prun/comm.hpp"

namespace prun::copies {

inline constexpr std::int32_t most_members = 16;
// A sender may be so many messages ahead of a receiver.
inline constexpr std::int64_t slots = 2;

// Every member has a buffer with `slots` slots for each other member. Message n, counted from 1, of a sender
// lies in slot n % slots of those that the receiver has for it.
class Layout {
 public:
  // The buffer has `buffer_bytes` at most, a message `message_bytes`, and so many lanes push.
  Layout(std::int32_t rank, std::int32_t size, std::int64_t buffer_bytes, std::int64_t message_bytes,
         std::int32_t lanes);

  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return size_; }
  // The longest message.
  std::int64_t slot_bytes() const { return slot_bytes_; }
  std::int64_t buffer_bytes() const { return slots * std::max(1, size_ - 1) * slot_bytes_; }
  // Returns the place of a message in the receiver's buffer.
  std::int64_t offset(std::int32_t to, std::int32_t from, std::uint64_t number) const;
  // These come after this member, and before it, in the order in which all members exchange: if one sends to
  // its k-th next first, that one takes from its k-th before first.
  std::int32_t next(std::int32_t k) const { return (rank_ + k) % size_; }
  std::int32_t before(std::int32_t k) const { return (rank_ + size_ - k) % size_; }
  // Says how many lanes push, and which of them pushes to a member: each has one for itself, as far as they
  // go.
  std::int32_t lanes() const { return lanes_; }
  std::int32_t lane_to(std::int32_t member) const { return (member + size_ - rank_ - 1) % size_ % lanes_; }

 private:
  std::int32_t rank_, size_, lanes_;
  std::int64_t slot_bytes_;
};

// Describes a range of elements.
struct Range {
  std::int64_t first = 0, count = 0;
};

// Returns the part of an all_reduce that a member adds up, where each adds up one.
Range part_of(std::int64_t count, DType dtype, std::int32_t member, std::int32_t size);

// Says whether an all_reduce is sent whole to every member, each of which adds up all of it.
bool is_small(const CommOp& op, const Layout& layout);

// Says how much a member writes right into this one's result of an operation, if results are reached.
std::int64_t placed_bytes(const CommOp& op, const Layout& layout, std::int32_t from);

struct Traffic {
  std::uint64_t sent = 0, received = 0;
};
Traffic traffic_of(const CommOp& op, const Layout& layout);

}  // namespace prun::copies
