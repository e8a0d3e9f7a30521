// Says which layers are of a kind: each of such a number, and those that are listed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "prun/foreign.hpp"

namespace prun {

struct LayersInTurn {
  std::int64_t every = 0;                 // each layer of such a number, counted from 1; 0: none
  std::vector<std::int64_t> listed = {};  // others

  static LayersInTurn of(std::int64_t every, const std::vector<double>& listed) {
    LayersInTurn given{every};
    for (const double layer : listed) given.listed.push_back(std::llround(layer));
    return given;
  }
  // Returns those among so many layers by the shortest rule.
  template <class Is>
  static LayersInTurn rule_of(std::int64_t layers, const Is& is) {
    LayersInTurn in_turn, found;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      if (is(layer)) found.listed.push_back(layer);
    if (found.listed.empty()) return {};
    in_turn.every = found.listed.front() + 1;
    std::int64_t like_it = 0;
    while (like_it < layers && in_turn.has(like_it) == is(like_it)) ++like_it;
    return like_it == layers ? in_turn : found;
  }

  bool any() const { return every != 0 || !listed.empty(); }
  bool has(std::int64_t layer) const {
    return (every != 0 && (layer + 1) % every == 0) ||
           std::find(listed.begin(), listed.end(), layer) != listed.end();
  }
};

}  // namespace prun
