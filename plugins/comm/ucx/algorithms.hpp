// Declares the algorithms: each writes the plan of one member. Which algorithm is taken, and with it the
// order of every sum, depends on kind, size, group size and the plugin's options alone.
#pragma once

#include <algorithm>

#include "plan.hpp"
#include "prun/comm.hpp"

namespace prun::ucx {

struct Tuning {
  std::int64_t chunk_bytes = 0;  // the size of a chunk of a pipelined message
  std::int64_t small_bytes = 0;  // up to here the fewest messages win, above it the fewest bytes
};

// Describes one member's view of a collective.
struct Shape {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int64_t count = 0;  // means what CommOp says
  std::int64_t element = 1;
  std::int32_t root = -1;
  bool in_place = false;  // in and out are the same memory, or one is its place in the other
  Tuning tuning;

  std::int64_t bytes() const { return count * element; }
  std::int32_t wrap(std::int64_t member) const {
    return static_cast<std::int32_t>(((member % size) + size) % size);
  }
  std::int32_t right() const { return wrap(rank + 1); }
  std::int32_t left() const { return wrap(rank - 1); }
};

Plan plan_all_reduce(const Shape& shape);
Plan plan_all_gather(const Shape& shape);
Plan plan_reduce_scatter(const Shape& shape);
Plan plan_broadcast(const Shape& shape);
Plan plan_all_to_all(const Shape& shape);
Plan plan_send(const Shape& shape);
Plan plan_recv(const Shape& shape);
Plan plan_barrier(const Shape& shape);

// Is a part of a message that is cut in parts of nearly equal size, on whole vectors of elements.
struct Part {
  std::int64_t offset = 0, bytes = 0;
};
inline Part part_of(std::int64_t elements, std::int64_t element, std::int64_t parts, std::int64_t part) {
  constexpr std::int64_t grain = 64;
  const auto edge = [&](std::int64_t i) {
    if (i == parts) return elements;
    const std::int64_t exact = elements / parts * i + std::min(i, elements % parts);
    return elements >= parts * grain ? exact / grain * grain : exact;
  };
  return {edge(part) * element, (edge(part + 1) - edge(part)) * element};
}

inline std::int64_t parts_for(std::int64_t bytes, std::int64_t chunk) {
  return std::max<std::int64_t>(1, (bytes + chunk - 1) / chunk);
}

// Data that is passed on as it came need not stay in a cache until it is added: its messages are fewer and
// larger.
inline constexpr std::int64_t forwarded_chunks = 4;

// One member has so many messages under way at a time in each direction.
inline constexpr std::size_t messages_under_way = 8;

}  // namespace prun::ucx
