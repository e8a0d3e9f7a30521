// Members whose lanes are lists of steps, taken in any order that the lanes allow: what goes wrong in some
// order goes wrong here. A copy takes two steps, each of which moves a half.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "schedule.hpp"

namespace prun::test {

class PretendedGroup;

class PretendedLanes {
 public:
  PretendedLanes(PretendedGroup& group, const copies::Layout& layout) : group_(group), layout_(layout) {}

  void fork() { order(taking_, pushing_); }
  void join() { order(pushing_, taking_); }
  void push(std::int32_t to, const std::byte* from, std::int64_t bytes);
  const std::byte* await(std::int32_t from);
  void release(std::int32_t from);
  void grant(std::int32_t from);
  void place(std::int32_t to, std::byte* place, const std::byte* from, std::int64_t bytes);
  void land(std::int32_t from);
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) { copy(taking_, to, from, bytes); }
  void fold(const copies::Summands& summands);

  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  friend class PretendedGroup;
  struct Step {
    std::function<bool()> may = [] { return true; };
    std::function<void()> act = [] {};
  };
  using Lane = std::deque<Step>;

  static void order(Lane& first, Lane& second) {
    const auto passed = std::make_shared<bool>(false);
    first.push_back({[] { return true; }, [passed] { *passed = true; }});
    second.push_back({[passed] { return *passed; }, [] {}});
  }
  static void copy(Lane& lane, std::byte* to, const std::byte* from, std::int64_t bytes) {
    const std::int64_t half = bytes / 2;
    lane.push_back({[] { return true; }, [=] { std::copy_n(from, half, to); }});
    lane.push_back({[] { return true; }, [=] { std::copy_n(from + half, bytes - half, to + half); }});
  }

  PretendedGroup& group_;
  const copies::Layout& layout_;
  Lane taking_, pushing_;
  std::array<std::uint64_t, copies::most_members> sent_{}, received_{}, granted_{}, placed_{}, has_arrived_{},
      has_freed_{}, has_granted_{}, has_landed_{};
  std::uint64_t bytes_sent_ = 0;
};

class PretendedGroup {
 public:
  PretendedGroup(std::int32_t size, std::int64_t buffer_bytes, unsigned seed) : random_(seed) {
    for (std::int32_t rank = 0; rank < size; ++rank) {
      layouts_.emplace_back(rank, size, buffer_bytes, buffer_bytes);
      buffers_.emplace_back(static_cast<std::size_t>(buffer_bytes));
    }
    for (const copies::Layout& layout : layouts_) members_.emplace_back(*this, layout);
  }

  const copies::Layout& layout(std::int32_t rank) const { return layouts_[static_cast<std::size_t>(rank)]; }
  PretendedLanes& member(std::int32_t rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::byte* buffer(std::int32_t rank) { return buffers_[static_cast<std::size_t>(rank)].data(); }

  // Takes all steps; returns whether every lane came to its end.
  bool run() {
    for (;;) {
      std::vector<PretendedLanes::Lane*> ready;
      bool ended = true;
      for (PretendedLanes& member : members_)
        for (PretendedLanes::Lane* lane : {&member.taking_, &member.pushing_}) {
          ended &= lane->empty();
          if (!lane->empty() && lane->front().may()) ready.push_back(lane);
        }
      if (ready.empty()) return ended;
      PretendedLanes::Lane& next = *ready[random_() % ready.size()];
      next.front().act();
      next.pop_front();
    }
  }

 private:
  std::mt19937 random_;
  std::deque<copies::Layout> layouts_;
  std::deque<PretendedLanes> members_;
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace prun::test
