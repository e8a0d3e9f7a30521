#include "unturned.hpp"

#include "config_keys.hpp"

namespace prun {
namespace {

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
