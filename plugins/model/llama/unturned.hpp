// Says in which layers positions do not turn queries and keys.
#pragma once

#include <cstdint>

#include "family.hpp"
#include "layers_in_turn.hpp"
#include "prun/foreign.hpp"
#include "windows.hpp"

namespace prun {

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
