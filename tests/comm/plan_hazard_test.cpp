// No plan of the ucx plugin may touch bytes that another of its steps may be using: every two steps of which
// one writes what the other uses are in an order.
#include <gtest/gtest.h>

#include <bitset>

#include "algorithms.hpp"

namespace prun::ucx {
namespace {

struct Use {
  Place place;
  std::int64_t bytes;
  bool writes;
};

std::vector<Use> uses_of(const Step& step) {
  switch (step.action) {
    case Action::send: return {{step.from, step.bytes, false}};
    case Action::receive: return {{step.to, step.bytes, true}};
    case Action::copy: return {{step.from, step.bytes, false}, {step.to, step.bytes, true}};
    case Action::combine:
      return {{step.from, step.bytes, false}, {step.second, step.bytes, false}, {step.to, step.bytes, true}};
    case Action::join: return {};
  }
  return {};
}

// In place, `in` and `out` are one memory, shifted by this.
std::int64_t shift_of_out(CommKind kind, const Shape& shape) {
  const std::int64_t own = shape.rank * shape.bytes();
  return kind == CommKind::all_gather ? -own : kind == CommKind::reduce_scatter ? own : 0;
}

bool overlap(const Use& a, const Use& b, CommKind kind, const Shape& shape) {
  if (!a.writes && !b.writes) return false;
  const auto memory = [&](const Place& p) {
    if (p.buffer != Buffer::out || !shape.in_place) return std::pair(static_cast<int>(p.buffer), p.offset);
    return std::pair(static_cast<int>(Buffer::in), p.offset + shift_of_out(kind, shape));
  };
  const auto [m, x] = memory(a.place);
  const auto [n, y] = memory(b.place);
  return m == n && x < y + b.bytes && y < x + a.bytes;
}

void expect_no_hazard(CommKind kind, const Plan& plan, const Shape& shape) {
  constexpr std::size_t most = 2048;
  const std::size_t steps = plan.steps.size();
  ASSERT_LE(steps, most);
  std::vector<std::bitset<most>> before(steps);  // what is surely done when a step runs
  for (std::size_t i = 0; i < steps; ++i)
    for (std::uint32_t e = plan.steps[i].next_begin; e < plan.steps[i].next_end; ++e) {
      const auto later = static_cast<std::size_t>(plan.next[e]);
      ASSERT_GT(later, i);
      before[later] |= before[i];
      before[later].set(i);
    }
  for (std::size_t i = 0; i < steps; ++i)
    for (std::size_t j = i + 1; j < steps; ++j)
      for (const Use& a : uses_of(plan.steps[i]))
        for (const Use& b : uses_of(plan.steps[j]))
          ASSERT_TRUE(before[j][i] || !overlap(a, b, kind, shape))
              << name_of(kind) << " on member " << shape.rank << " of " << shape.size << ", " << shape.bytes()
              << " bytes, in place " << shape.in_place << ": steps " << i << " and " << j;
}

// Scratch is said to be needed in advance, so all of it must be: but for the rest of a cache line, and what
// the last chunk is smaller than the largest.
void expect_all_scratch_used(CommKind kind, const Plan& plan, const Shape& shape) {
  const std::int64_t line = 64, grain = 64 * shape.element;  // of blocks and of chunks
  std::int64_t end = 0;
  for (const Step& step : plan.steps)
    for (const Use& use : uses_of(step))
      if (use.place.buffer == Buffer::scratch) end = std::max(end, use.place.offset + use.bytes);
  EXPECT_LE(end, plan.scratch_bytes);
  EXPECT_GT(end + 2 * grain + line, plan.scratch_bytes)
      << name_of(kind) << " on member " << shape.rank << " of " << shape.size << ", " << shape.bytes()
      << " bytes";
}

template <class Body>
void each_plan(Body&& body) {
  const std::pair<CommKind, Plan (*)(const Shape&)> plans[] = {
      {CommKind::all_reduce, plan_all_reduce},
      {CommKind::all_gather, plan_all_gather},
      {CommKind::reduce_scatter, plan_reduce_scatter}};
  for (const auto& [kind, write] : plans)
    for (std::int32_t size = 1; size <= 9; ++size)
      for (std::int32_t rank = 0; rank < size; ++rank)
        for (std::int64_t count : {1, 100, 1500, 9000})
          for (bool in_place : {false, true}) {
            Shape shape;
            shape.rank = rank;
            shape.size = size;
            shape.count = count;
            shape.element = 4;
            shape.in_place = in_place;
            shape.tuning = {8 * 1024, 4 * 1024};
            body(kind, write(shape), shape);
          }
}

TEST(UcxPlans, StepsThatShareBytesAreInOrder) { each_plan(expect_no_hazard); }

TEST(UcxPlans, AllScratchIsUsed) { each_plan(expect_all_scratch_used); }

}  // namespace
}  // namespace prun::ucx
