// Says which layers see only a window of the positions before them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "family.hpp"
#include "prun/foreign.hpp"

namespace prun {

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

}  // namespace prun
