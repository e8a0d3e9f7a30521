// Finds over which part of the chain each carried value is needed: from the instance of its segment to the
// last one that reads it or adds to its gradient.
#pragma once

#include <vector>

#include "plan/work.hpp"

namespace prun {

struct CarriedSpan {
  CarriedValue of;
  std::int32_t from = 0, last = 0;  // instances of the chain

  // Says whether the value crosses the border before an instance of the chain.
  bool crosses(std::int32_t instance) const { return from < instance && instance <= last; }
  // Says whether instances [begin, end) of the chain use the value, or pass it on.
  bool meets(std::int32_t begin, std::int32_t end) const { return from < end && begin <= last; }

  // Says whether the value comes with a chunk's input, and goes with its output: to ranks that do not have it
  // yet. Its gradient goes the other way over every border between ranks, so that summands come in the order
  // of backward.
  bool arrives(const Work& work, const ChunkWork& chunk) const {
    return gradient_leaves(work, chunk) && chunk.held <= from;
  }
  bool leaves(const Work& work, const ChunkWork& chunk) const {
    return gradient_arrives(work, chunk) && chunk.held_by_next <= from;
  }
  bool gradient_leaves(const Work& work, const ChunkWork& chunk) const {
    return crosses(chunk.first) && chunk.from >= 0 && chunk.from != work.coordinate;
  }
  bool gradient_arrives(const Work& work, const ChunkWork& chunk) const {
    return crosses(chunk.last) && chunk.to >= 0 && chunk.to != work.coordinate;
  }
};

std::vector<CarriedSpan> carried_spans(const Program& program);

}  // namespace prun
