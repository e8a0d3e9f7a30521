#include "windows.hpp"

#include <string>
#include <vector>

#include "config_keys.hpp"

namespace prun {
namespace {

constexpr const char* windowed_type = "sliding_attention";

// Finds which layers the list says have the window; one that follows no rule of ours is refused.
WindowedLayers listed_windows(const std::vector<std::string>& types, std::int64_t layers) {
  if (static_cast<std::int64_t>(types.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", types.size(), " layers of ", layers);
  const auto windowed = [&](std::int64_t i) { return types[static_cast<std::size_t>(i)] == windowed_type; };
  WindowedLayers found{.window = 1};
  while (found.from < layers && !windowed(found.from)) ++found.from;
  if (found.from == layers) return {};
  std::int64_t full = found.from;
  while (full < layers && windowed(full)) ++full;
  if (full < layers) found.full_every = full + 1;
  for (std::int64_t i = 0; i < layers; ++i)
    if (found.has(i) != windowed(i))
      throw_error(ErrorCode::bad_input, "'layer_types' has '", types[static_cast<std::size_t>(i)],
                  "' for layer ", i,
                  "; this model has windows from one layer on, or in all but each layer of such a number");
  return found;
}

WindowedLayers layers_with_windows(const Options& config, const Family& family, std::int64_t layers) {
  if (config.has("layer_types")) {
    const std::vector<std::string> types = config.texts("layer_types");
    for (const std::string& type : types)
      if (type != "full_attention" && (type != windowed_type || family.windows == WindowKeys::absent))
        throw_error(ErrorCode::bad_input, "'layer_types' has '", type,
                    "', and this model only computes full ",
                    family.windows == WindowKeys::absent ? "attention" : "and sliding attention");
    if (family.windows != WindowKeys::every) return listed_windows(types, layers);
  }
  switch (family.windows) {
    case WindowKeys::absent: return {};
    case WindowKeys::every: return {.window = 1};
    case WindowKeys::late: return {.window = 1, .from = integer_or(config, "max_window_layers", 28)};
    case WindowKeys::turns:
      return {.window = 1, .from = 0, .full_every = integer_or(config, "sliding_window_pattern", 6)};
  }
  return {};
}

}  // namespace

WindowedLayers WindowedLayers::of(const Options& options) {
  return {options.integer("window"), options.integer("window_from"), options.integer("full_every")};
}

WindowedLayers WindowedLayers::read_config(const Options& config, const Family& family, std::int64_t layers) {
  if (family.windows == WindowKeys::absent) expect_flag(config, "use_sliding_window", false);
  WindowedLayers found = layers_with_windows(config, family, layers);
  const bool off = family.windows == WindowKeys::late &&
                   !(config.has("use_sliding_window") && config.flag("use_sliding_window"));
  const std::int64_t window = off ? 0 : integer_or(config, "sliding_window", 0);
  if (off && config.has("layer_types") && found.window > 0)
    throw_error(ErrorCode::bad_input, "'layer_types' has '", windowed_type,
                "', and 'use_sliding_window' is not true; make it so, or leave the window out");
  if (window == 0 || found.window == 0 || found.from >= layers) return {};
  found.window = window;
  return found;
}

void WindowedLayers::write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const {
  const bool some = window > 0;
  if (some && family.windows == WindowKeys::absent) throw_no_key(family, "window", "windows");
  if (family.windows != WindowKeys::turns && full_every != 0)
    throw_no_key(family, "full_every", "layers in turn");
  if (family.windows != WindowKeys::late && from != 0)
    throw_no_key(family, "window_from", "a first layer of windows");
  if (family.windows == WindowKeys::late) {
    config.set("use_sliding_window", some);
    config.set("max_window_layers", some ? from : layers);
  }
  if (some) config.set("sliding_window", window);
  if (family.windows != WindowKeys::turns) return;
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    types.emplace_back(has(layer) ? "sliding_attention" : "full_attention");
  config.set("layer_types", types);
  if (full_every != 0) config.set("sliding_window_pattern", full_every);
}

void WindowedLayers::write_options(ConfigWriter& options) const {
  if (window == 0) return;
  options.set("window", window);
  if (from != 0) options.set("window_from", from);
  if (full_every != 0) options.set("full_every", full_every);
}

}  // namespace prun
