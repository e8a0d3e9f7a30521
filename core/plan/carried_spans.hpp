// Finds the layers over which each carried value is needed: from its segment to its last reader. Example: an
// encoder output of layer 3, read by layers 5 to 9, crosses the boundary before layers 4 to 9.
#pragma once

#include <vector>

#include "plan/work.hpp"

namespace prun {

struct CarriedSpan {
  CarriedValue of;
  std::int32_t from = 0, last = 0;  // instances of the chain

  // Returns true if the value crosses the boundary before that layer.
  bool crosses(std::int32_t instance) const { return from < instance && instance <= last; }
  // Returns true if layers [begin, end) use the value or pass it on.
  bool meets(std::int32_t begin, std::int32_t end) const { return from < end && begin <= last; }

  // Returns true if the value arrives with a chunk's input: if the rank does not have it yet. Its gradient
  // returns over every boundary between ranks, so that contributions are added in the order of backward.
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
