// Finds which elements of a parameter, its gradient and its optimizer state this rank holds, and where.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "execute/plan_memory.hpp"
#include "plan/persistent.hpp"

namespace prun {

// Returns the stretches of the rank's part of a value.
std::vector<Stretch> stretches(const Program& program, Id value, std::int64_t rank);

// States that elements [first, first + count) of the rank's part of a parameter are elements [at, at + count)
// of a value in the plan's memory. A packed parameter is held by several ranks, each some of it; `count` may
// be 0.
struct LocalPart {
  Id value = none;
  DType type = DType::f32;
  std::int64_t at = 0, first = 0, count = 0;
};

enum class Kept : std::uint8_t { parameter, gradient, master, before };

// Returns what this rank holds of a parameter, of its gradient (the sum over all ranks, once a step is done),
// of its master copy or of its value before the last update (count 0: there is none).
LocalPart local_part(const Program& program, std::int64_t rank, Id parameter, Kept kept);

// Returns what the rank holds of the parameter as it was so many updates before.
LocalPart held_before(const Program& program, Id parameter, std::int64_t updates);

// Returns the same for its optimizer state, in the order of the optimizer.
std::vector<LocalPart> local_states(const Program& program, std::int64_t rank, Id parameter);

// Returns what a kernel is told of the value that it updates, or a copy of; nothing if that is neither a
// parameter nor a part of several packed together.
std::optional<std::vector<TensorElements>> updated_elements(const Program& program, std::int64_t rank,
                                                            Id value, std::int64_t layer);

// Describes a run of held elements: `whole` is where it begins in the whole parameter, `offset` its first
// byte in a value of the plan's memory.
struct HeldRun {
  Id value = none;
  std::int32_t instance = 0;
  std::int64_t offset = 0;
  DType type = DType::f32;
  std::int64_t whole = 0, count = 0;

  std::vector<std::byte> read(const PlanMemory& memory) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(type)));
    memory.read(value, instance, offset, bytes);
    return bytes;
  }
};

// Calls body(run) for each run of held elements.
template <class Body>
void each_run(const Program& program, std::int64_t rank, Id parameter, std::int32_t instance,
              const LocalPart& have, Body&& body) {
  for (const Stretch& s : stretches(program, parameter, rank)) {
    const std::int64_t begin = std::max(s.part, have.first),
                       end = std::min(s.part + s.count, have.first + have.count);
    if (begin < end)
      body(HeldRun{have.value, instance, (have.at + begin - have.first) * size_of(have.type), have.type,
                   s.whole + begin - s.part, end - begin});
  }
}
template <class Body>
void each_held(const Program& program, std::int64_t rank, Id parameter, std::int32_t instance, Kept kept,
               Body&& body) {
  each_run(program, rank, parameter, instance, local_part(program, rank, parameter, kept), body);
}

}  // namespace prun
