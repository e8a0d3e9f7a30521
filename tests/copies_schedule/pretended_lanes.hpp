// Members whose lanes are lists of steps. One thread takes them in any order that the lanes allow: what goes
// wrong in some order goes wrong there. Or each lane has a thread, which a sanitizer may watch: memory that
// numbers do not guard is a race then, in whatever order it was used. A copy takes two steps, each of which
// moves a half.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "schedule.hpp"

namespace prun::test {

class PretendedGroup;

class PretendedLanes {
 public:
  PretendedLanes(PretendedGroup& group, const copies::Layout& layout)
      : group_(group), layout_(layout), pushing_(static_cast<std::size_t>(layout.lanes())) {}

  void fork();
  void join();
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
  using Number = std::atomic<std::uint64_t>;
  using Numbers = std::array<Number, copies::most_members>;
  // Waits until a number is `least` or more, if there is one; then acts, and sets another, if there is one.
  struct Step {
    const Number* awaited = nullptr;
    std::uint64_t least = 0;
    std::function<void()> act = [] {};
    Number* set = nullptr;
    std::uint64_t value = 0;

    bool may() const { return !awaited || awaited->load(std::memory_order_acquire) >= least; }
    void take() const {
      act();
      if (set) set->store(value, std::memory_order_release);
    }
  };
  using Lane = std::deque<Step>;
  struct PushingLane {
    Lane steps;
    bool follows = true, reads = false;
  };

  Lane& pushing(std::int32_t to, bool reads);
  static void await(Lane& lane, const Number& number, std::uint64_t least);
  static void set(Lane& lane, Number& number, std::uint64_t value);
  static void copy(Lane& lane, std::byte* to, const std::byte* from, std::int64_t bytes);
  std::vector<Lane*> lanes();

  PretendedGroup& group_;
  const copies::Layout& layout_;
  Lane taking_;
  std::vector<PushingLane> pushing_;
  std::deque<Number> passed_;  // one for each fork and join
  std::array<std::uint64_t, copies::most_members> sent_{}, received_{}, granted_{}, placed_{}, landed_{};
  Numbers has_arrived_{}, has_freed_{}, has_granted_{}, has_landed_{};
  std::uint64_t bytes_sent_ = 0;
};

class PretendedGroup {
 public:
  PretendedGroup(std::int32_t size, std::int64_t buffer_bytes, unsigned seed, std::int32_t lanes);

  std::int32_t size() const { return static_cast<std::int32_t>(layouts_.size()); }
  const copies::Layout& layout(std::int32_t rank) const { return layouts_[static_cast<std::size_t>(rank)]; }
  PretendedLanes& member(std::int32_t rank) { return members_[static_cast<std::size_t>(rank)]; }
  std::byte* buffer(std::int32_t rank) { return buffers_[static_cast<std::size_t>(rank)].data(); }

  // Takes all steps, but none of the member `late`; returns whether every lane came to its end. Numbers only
  // grow, so a step that may be taken may be taken later, too: if one order comes to the end, all do.
  bool run(std::int32_t late = -1);
  // Does the same by a thread for each lane, which waits half a minute at most.
  bool run_on_threads();

 private:
  std::mt19937 random_;
  std::deque<copies::Layout> layouts_;
  std::deque<PretendedLanes> members_;
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace prun::test
