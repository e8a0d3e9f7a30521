#include "pretended_lanes.hpp"

#include "prun/error.hpp"

namespace prun::test {
namespace {

std::size_t at(std::int32_t member) { return static_cast<std::size_t>(member); }

}  // namespace

void PretendedLanes::push(std::int32_t to, const std::byte* from, std::int64_t bytes) {
  PRUN_CHECK(bytes <= layout_.slot_bytes(), "a message of ", bytes);
  const std::uint64_t number = ++sent_[at(to)];
  const std::int32_t me = layout_.rank();
  pushing_.push_back({[=, this] { return has_freed_[at(to)] + copies::slots >= number; }, [] {}});
  copy(pushing_, group_.buffer(to) + layout_.offset(to, me, number), from, bytes);
  pushing_.push_back({[] { return true; }, [=, this] { group_.member(to).has_arrived_[at(me)] = number; }});
  bytes_sent_ += static_cast<std::uint64_t>(bytes);
}

const std::byte* PretendedLanes::await(std::int32_t from) {
  const std::uint64_t number = ++received_[at(from)];
  taking_.push_back({[=, this] { return has_arrived_[at(from)] >= number; }, [] {}});
  return group_.buffer(layout_.rank()) + layout_.offset(layout_.rank(), from, number);
}

void PretendedLanes::release(std::int32_t from) {
  const std::uint64_t number = received_[at(from)];
  taking_.push_back(
      {[] { return true; }, [=, this] { group_.member(from).has_freed_[at(layout_.rank())] = number; }});
}

void PretendedLanes::grant(std::int32_t from) {
  const std::uint64_t number = ++granted_[at(from)];
  taking_.push_back(
      {[] { return true; }, [=, this] { group_.member(from).has_granted_[at(layout_.rank())] = number; }});
}

void PretendedLanes::place(std::int32_t to, std::byte* place, const std::byte* from, std::int64_t bytes) {
  const std::uint64_t number = ++placed_[at(to)];
  pushing_.push_back({[=, this] { return has_granted_[at(to)] >= number; }, [] {}});
  copy(pushing_, place, from, bytes);
  pushing_.push_back(
      {[] { return true; }, [=, this] { group_.member(to).has_landed_[at(layout_.rank())] = number; }});
  bytes_sent_ += static_cast<std::uint64_t>(bytes);
}

void PretendedLanes::land(std::int32_t from) {
  const std::uint64_t number = granted_[at(from)];
  taking_.push_back({[=, this] { return has_landed_[at(from)] >= number; }, [] {}});
}

void PretendedLanes::fold(const copies::Summands& summands) {
  PRUN_CHECK(summands.dtype == DType::i32 && summands.reduction == Reduction::sum, "a fold");
  taking_.push_back({[] { return true; },
                     [=] {
                       for (std::int64_t i = 0; i < summands.count; ++i) {
                         std::int32_t sum = 0;
                         for (std::int32_t rank = 0; rank < summands.members; ++rank)
                           sum = sum * 3 + reinterpret_cast<const std::int32_t*>(summands.from[at(rank)])[i];
                         reinterpret_cast<std::int32_t*>(summands.to)[i] = sum;
                       }
                     }});
}

}  // namespace prun::test
