// Which elements of a parameter, its gradient and its optimizer state this rank holds, and where.
#pragma once

#include <vector>

#include "assemble/assembly.hpp"
#include "execute/executor.hpp"

namespace prun {

// Consecutive elements, both in the rank's part of a value and in the whole value.
struct Stretch {
  std::int64_t part = 0, whole = 0, count = 0;
};
std::vector<Stretch> stretches(const Program& program, Id value, std::int64_t rank);

// Elements [first, first + count) of the rank's part of a value. A packed value is held by several ranks,
// each some of it; `count` may be 0.
struct Held {
  std::byte* data = nullptr;
  DType type = DType::f32;
  std::int64_t first = 0, count = 0;
};

enum class Kept : std::uint8_t { parameter, gradient, master };

// What this rank holds of a parameter, of its gradient (the sum over all ranks, once a step is done) or of
// its master copy (count 0: there is none).
Held held(const Assembly& assembly, Executor& executor, Id parameter, std::int32_t instance, Kept kept);

// Calls body(data, type, whole, count) for each run of elements that is held.
template <class Body>
void each_held(const Assembly& assembly, Executor& executor, Id parameter, std::int32_t instance, Kept kept,
               Body&& body) {
  const Held have = held(assembly, executor, parameter, instance, kept);
  for (const Stretch& s : stretches(assembly.program(), parameter, assembly.rank())) {
    const std::int64_t begin = std::max(s.part, have.first),
                       end = std::min(s.part + s.count, have.first + have.count);
    if (begin < end)
      body(have.data + (begin - have.first) * size_of(have.type), have.type, s.whole + begin - s.part,
           end - begin);
  }
}

}  // namespace prun
