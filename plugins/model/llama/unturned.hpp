// Says in which layers positions do not turn queries and keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "family.hpp"
#include "prun/foreign.hpp"
#include "windows.hpp"

namespace prun {

struct UnturnedLayers {
  std::int64_t every = 0;                 // each layer of such a number, counted from 1; 0: none
  std::vector<std::int64_t> listed = {};  // others

  static UnturnedLayers of(const Options& options);
  // Returns what a config.json says of so many layers, of which some have windows.
  static UnturnedLayers read_config(const Options& config, const Family& family,
                                    const WindowedLayers& windows, std::int64_t layers);
  void write_config(const Family& family, const WindowedLayers& windows, std::int64_t layers,
                    ConfigWriter& config) const;
  void write_options(ConfigWriter& options) const;

  bool any() const { return every != 0 || !listed.empty(); }
  bool has(std::int64_t layer) const {
    return (every != 0 && (layer + 1) % every == 0) ||
           std::find(listed.begin(), listed.end(), layer) != listed.end();
  }
};

}  // namespace prun
