#include "windows.hpp"

#include <string>
#include <vector>

#include "config_keys.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- windows

constexpr const char* windowed_type = "sliding_attention";

// Says whether windows count only where use_sliding_window is true.
bool is_switched(const Family& family) {
  return family.windows == WindowKeys::late || family.windows == WindowKeys::early;
}

// Returns the layers that have a window by the shortest rule: from one on, in all but each of such a number,
// or in all but those that are listed.
template <class Windowed>
WindowedLayers rule_of(std::int64_t layers, const Windowed& windowed) {
  WindowedLayers found{.window = 1};
  while (found.from < layers && !windowed(found.from)) ++found.from;
  if (found.from == layers) return {};
  std::int64_t full = found.from;
  while (full < layers && windowed(full)) ++full;
  if (full == layers) return found;
  WindowedLayers in_turn = found;
  in_turn.full_every = full + 1;
  std::int64_t like_it = 0;
  for (; like_it < layers && in_turn.has(like_it) == windowed(like_it); ++like_it) {
  }
  if (like_it == layers) return in_turn;
  for (; full < layers; ++full)
    if (!windowed(full)) found.full.push_back(full);
  return found;
}

WindowedLayers listed_windows(const std::vector<std::string>& types, std::int64_t layers) {
  if (static_cast<std::int64_t>(types.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", types.size(), " layers of ", layers);
  return rule_of(layers, [&](std::int64_t i) { return types[static_cast<std::size_t>(i)] == windowed_type; });
}

WindowedLayers layers_with_windows(const Options& config, const Family& family, std::int64_t layers) {
  if (config.has("layer_types")) {
    const std::vector<std::string> types = config.texts("layer_types");
    for (const std::string& type : types)
      if (type != "full_attention" && (type != windowed_type || family.windows == WindowKeys::absent) &&
          (type != "linear_attention" || family.delta == DeltaKeys::absent))
        throw_error(ErrorCode::bad_input, "'layer_types' has '", type,
                    "', and this model only computes full ",
                    family.windows == WindowKeys::absent ? "attention" : "and sliding attention");
    if (family.windows != WindowKeys::every) return listed_windows(types, layers);
  }
  switch (family.windows) {
    case WindowKeys::absent: return {};
    case WindowKeys::listed:
    case WindowKeys::every: return {.window = 1};
    case WindowKeys::late: return {.window = 1, .from = integer_or(config, "max_window_layers", 28)};
    case WindowKeys::early: {
      const std::int64_t end = integer_or(config, "max_window_layers", 28);
      return rule_of(layers, [=](std::int64_t i) { return i % 2 == 0 && i < end; });
    }
    case WindowKeys::turns:
      return {.window = 1,
              .from = 0,
              .full_every = integer_or(config, "sliding_window_pattern", family.full_every)};
    case WindowKeys::fours: return rule_of(layers, [](std::int64_t i) { return i % 4 != 0; });
  }
  return {};
}

}  // namespace

WindowedLayers WindowedLayers::of(const Options& options) {
  WindowedLayers given{options.integer("window"), options.integer("window_from"),
                       options.integer("full_every")};
  for (const double layer : options.numbers("full_layers"))
    given.full.push_back(static_cast<std::int64_t>(layer));
  return given;
}

WindowedLayers WindowedLayers::read_config(const Options& config, const Family& family, std::int64_t layers) {
  if (family.windows == WindowKeys::absent) expect_flag(config, "use_sliding_window", false);
  WindowedLayers found = layers_with_windows(config, family, layers);
  const bool off =
      is_switched(family) && !(config.has("use_sliding_window") && config.flag("use_sliding_window"));
  const std::int64_t window = off ? 0 : integer_or(config, "sliding_window", 0);
  if (off && config.has("layer_types") && found.window > 0)
    throw_error(ErrorCode::bad_input, "'layer_types' has '", windowed_type,
                "', and 'use_sliding_window' is not true; make it so, or leave the window out");
  if (found.window > 0 && family.window_number && !config.has("sliding_window"))
    throw_error(ErrorCode::bad_input, "'sliding_window' is missing or null, and some layers of model_type '",
                family.model_type, "' have a window; write its number");
  if (window == 0 || found.window == 0 || found.from >= layers) return {};
  found.window = window;
  return found;
}

void WindowedLayers::write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const {
  const bool some = window > 0, listed = family.windows != WindowKeys::every;
  if (some && family.windows == WindowKeys::absent) throw_no_key(family, "window", "windows");
  if (!listed && from != 0) throw_no_key(family, "window_from", "a first layer of windows");
  if (!listed && full_every != 0) throw_no_key(family, "full_every", "layers in turn");
  if (!listed && !full.empty()) throw_no_key(family, "full_layers", "layers without windows");
  if (is_switched(family)) {
    config.set("use_sliding_window", some);
    config.set("max_window_layers", some ? from : layers);
  }
  // Classes of transformers have defaults.
  if (some)
    config.set("sliding_window", window);
  else if (!family.window_number)
    config.set_null("sliding_window");
  if (!listed || family.windows == WindowKeys::absent) return;
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    types.emplace_back(has(layer) ? windowed_type : "full_attention");
  config.set("layer_types", types);
  if (family.windows == WindowKeys::turns && full_every != 0 && from == 0 && full.empty())
    config.set("sliding_window_pattern", full_every);
}

void WindowedLayers::write_options(ConfigWriter& options) const {
  if (window == 0) return;
  options.set("window", window);
  if (from != 0) options.set("window_from", from);
  if (full_every != 0) options.set("full_every", full_every);
  if (!full.empty()) options.set("full_layers", full);
}

namespace {

// ------------------------------------------------------------------- unturned

// A list has 0 for layers that do not turn.
UnturnedLayers read_list(const Options& config, std::int64_t layers) {
  const std::vector<double> turned = config.numbers("no_rope_layers");
  if (static_cast<std::int64_t>(turned.size()) < layers)
    throw_error(ErrorCode::bad_input, "'no_rope_layers' lists ", turned.size(), " layers of ", layers);
  return {LayersInTurn::rule_of(layers,
                                [&](std::int64_t i) { return turned[static_cast<std::size_t>(i)] == 0; })};
}

}  // namespace

UnturnedLayers UnturnedLayers::of(const Options& options) {
  return {LayersInTurn::of(options.integer("nope_every"), options.numbers("nope_layers"))};
}

UnturnedLayers UnturnedLayers::read_config(const Options& config, const Family& family,
                                           const WindowedLayers& windows, std::int64_t layers) {
  if (family.unturned == UnturnedKeys::full && config.has("sliding_window"))
    return {rule_of(layers, [&](std::int64_t i) { return !windows.has(i); })};
  if (family.unturned != UnturnedKeys::listed) return {};
  if (config.has("no_rope_layers")) return read_list(config, layers);
  const std::int64_t every = integer_or(config, "no_rope_layer_interval", 4);
  if (every < 1)
    throw_error(ErrorCode::bad_input, "'no_rope_layer_interval' is ", every,
                ", and it counts layers from 1 on");
  return {rule_of(layers, [=](std::int64_t i) { return (i + 1) % every == 0; })};
}

void UnturnedLayers::write_config(const Family& family, const WindowedLayers& windows, std::int64_t layers,
                                  ConfigWriter& config) const {
  if (family.unturned == UnturnedKeys::absent) {
    if (any()) throw_no_key(family, every != 0 ? "nope_every" : "nope_layers", "layers that do not turn");
    return;
  }
  // Without a window classes of transformers take a number for it.
  if (family.unturned == UnturnedKeys::full && family.window_number && windows.window == 0)
    throw_no_key(family, "window");
  std::vector<std::int64_t> turned;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    turned.push_back(has(layer) ? 0 : 1);
    if (family.unturned == UnturnedKeys::full && has(layer) != (windows.window > 0 && !windows.has(layer)))
      throw_no_key(family, every != 0 ? "nope_every" : "nope_layers");
  }
  if (family.unturned == UnturnedKeys::listed) config.set("no_rope_layers", turned);
}

void UnturnedLayers::write_options(ConfigWriter& options) const {
  if (every != 0) options.set("nope_every", every);
  if (!listed.empty()) options.set("nope_layers", listed);
}

}  // namespace prun
