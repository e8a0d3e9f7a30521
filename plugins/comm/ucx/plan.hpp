// Describes what one member does for one collective: messages, copies and sums, each with what it waits for.
// A plan is made once for a kind and size, knows offsets instead of addresses, and is then run many times.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace prun::ucx {

enum class Buffer : std::uint8_t { in, out, scratch };

struct Place {
  Buffer buffer = Buffer::in;
  std::int64_t offset = 0;  // bytes
  Place operator+(std::int64_t bytes) const { return {buffer, offset + bytes}; }
};

enum class Action : std::uint8_t { send, receive, copy, combine, join };

using StepId = std::int32_t;
inline constexpr StepId no_step = -1;
// A plan of so many steps takes some 900 MB of the host's memory.
inline constexpr std::int64_t most_steps = 8'000'000;
// Throws unsupported where a plan among so many members would have more steps than that.
void refuse_more_steps(std::size_t members, std::int64_t steps);

struct Step {
  Action action = Action::copy;
  std::int32_t peer = -1;
  std::uint32_t message = 0;     // is its number among messages between this pair, in this direction
  Place from{}, second{}, to{};  // combine: to = from (+) second
  std::int64_t bytes = 0;
  std::uint32_t waits_for = 0;  // counts the steps it waits for
  std::uint32_t next_begin = 0, next_end = 0;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<StepId> next;  // holds for each step the steps that wait for it
  std::int64_t scratch_bytes = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
};

// Steps wait for earlier ones only. Both members of a pair must write the messages between them in the same
// order, since that numbers them. A step that would move no bytes is left out.
class PlanWriter {
 public:
  using After = std::initializer_list<StepId>;

  explicit PlanWriter(std::int32_t members) : sent_(members, 0), received_(members, 0) {}

  StepId send(std::int32_t peer, Place from, std::int64_t bytes, After after = {});
  StepId receive(std::int32_t peer, Place to, std::int64_t bytes, After after = {});
  StepId copy(Place from, Place to, std::int64_t bytes, After after = {});
  StepId combine(Place from, Place second, Place to, std::int64_t bytes, After after = {});
  // These two add messages without payload.
  StepId notify(std::int32_t peer, After after = {});
  StepId await(std::int32_t peer, After after = {});

  // Adds a step that only waits for all these.
  StepId join(const std::vector<StepId>& steps);

  // Returns the next `bytes` of scratch, which begin a cache line of their own.
  Place scratch(std::int64_t bytes);

  Plan finish();

 private:
  struct Edge {
    StepId before, after;
  };
  StepId add(Step step, After after);

  Plan plan_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> sent_, received_;
};

// Bounds how many steps are under way: a new step waits for the one that was added `size` before it.
class Window {
 public:
  explicit Window(std::size_t size) : steps_(size, no_step) {}
  StepId oldest() const { return steps_[at_]; }
  void add(StepId step) {
    steps_[at_] = step;
    at_ = (at_ + 1) % steps_.size();
  }

 private:
  std::vector<StepId> steps_;
  std::size_t at_ = 0;
};

}  // namespace prun::ucx
