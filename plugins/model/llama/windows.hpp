// Says which layers see only a window of the positions before them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "family.hpp"
#include "prun/foreign.hpp"

namespace prun {

// ------------------------------------------------------------------- windows

struct WindowedLayers {
  std::int64_t window = 0;              // counts positions, its own among them; 0: no layer has one
  std::int64_t from = 0;                // the first layer that has one
  std::int64_t full_every = 0;          // each layer of such a number, counted from 1, sees all; 0: none
  std::vector<std::int64_t> full = {};  // others that see all

  static WindowedLayers of(const Options& options);
  // Returns what a config.json says of so many layers.
  static WindowedLayers read_config(const Options& config, const Family& family, std::int64_t layers);
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
  void write_options(ConfigWriter& options) const;

  bool has(std::int64_t layer) const {
    return window > 0 && layer >= from && (full_every == 0 || (layer + 1) % full_every != 0) &&
           std::find(full.begin(), full.end(), layer) == full.end();
  }
};

// ------------------------------------------------------------------- layers in turn
// Says which layers are of a kind: each of such a number, and those that are listed.

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

// ------------------------------------------------------------------- unturned
// Says in which layers positions do not turn queries and keys.

struct UnturnedLayers : LayersInTurn {
  static UnturnedLayers of(const Options& options);
  // Returns what a config.json says of so many layers, of which some have windows.
  static UnturnedLayers read_config(const Options& config, const Family& family,
                                    const WindowedLayers& windows, std::int64_t layers);
  void write_config(const Family& family, const WindowedLayers& windows, std::int64_t layers,
                    ConfigWriter& config) const;
  void write_options(ConfigWriter& options) const;
};

}  // namespace prun
