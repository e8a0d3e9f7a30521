#include "offload_settings.hpp"

#include "prun/error.hpp"

namespace prun {
namespace {

bool is_elsewhere(const Shares& shares) {
  return lies_in(shares, PlaceKind::host) || lies_in(shares, PlaceKind::tier);
}

void choose_all(StatePlaces& wanted) {
  if (!all_in(wanted.optimizer, PlaceKind::host) || !wanted.only_state_and_activations() ||
      !all_in(wanted.activations, PlaceKind::device))
    throw_error(
        ErrorCode::bad_input,
        "cannot set places together with mode = \"auto\", which chooses those of optimizer, gradients, "
        "parameters and activations; leave these out, or set some of them to \"auto\" instead of mode");
  const Shares automatic{{Place{PlaceKind::automatic}}};
  wanted = {automatic, automatic, automatic, automatic};
}

void check(const OffloadSettings& settings) {
  const StatePlaces& wanted = settings.state_places;
  const bool others = is_elsewhere(wanted.gradients) || is_elsewhere(wanted.parameters);
  if (all_in(wanted.optimizer, PlaceKind::device) && others)
    throw_error(ErrorCode::bad_input,
                "cannot offload parameters or gradients with the optimizer on the device; set optimizer = "
                "\"host\" or a tier too");
  if (settings.updated_here && (others || lies_in(wanted.optimizer, PlaceKind::tier)))
    throw_error(ErrorCode::bad_input,
                "cannot apply update = \"device\": it needs optimizer state in the host's memory and "
                "gradients and parameters on the device; place them so, or leave update out");
}

}  // namespace

OffloadSettings read_offload_settings(const Options& options) {
  const auto shares = [&](const char* key) { return read_shares(key, options.text(key)); };
  OffloadSettings settings;
  settings.state_places.optimizer = shares("optimizer");
  settings.state_places.parameters = shares("parameters");
  settings.state_places.gradients = shares("gradients");
  settings.state_places.activations = shares("activations");
  if (options.has("frozen")) settings.frozen = shares("frozen");
  if (all_in(settings.frozen, PlaceKind::automatic))
    throw_error(
        ErrorCode::bad_input,
        "frozen says where parameters that are not trained lie: device, host or a tier; left out, they lie "
        "where parameters do, which may be \"auto\"");
  settings.speculate = options.text("speculate") == "auto";
  settings.updated_here = options.text("update") == "device";
  if (const std::string tile = options.text("tile"); tile != "auto") settings.tiled = tile == "tensor";
  if (options.text("mode") == "auto") choose_all(settings.state_places);
  check(settings);
  return settings;
}

}  // namespace prun
