#include "wishes.hpp"

#include "prun/error.hpp"

namespace prun {
namespace {

bool is_elsewhere(const Shares& shares) {
  return lies_in(shares, PlaceKind::host) || lies_in(shares, PlaceKind::tier);
}

void choose_all(Lies& wanted) {
  if (!lies_all(wanted.optimizer, PlaceKind::host) || !wanted.only_state_and_activations() ||
      !lies_all(wanted.activations, PlaceKind::device))
    throw_error(ErrorCode::bad_input,
                "mode = \"auto\" chooses where optimizer, gradients, parameters and activations lie; leave "
                "those four out, or set some of them to \"auto\" instead of mode");
  const Shares automatic{{Place{PlaceKind::automatic}}};
  wanted = {automatic, automatic, automatic, automatic};
}

void check(const Wishes& wishes) {
  const Lies& wanted = wishes.lies;
  const bool others = is_elsewhere(wanted.gradients) || is_elsewhere(wanted.parameters);
  if (lies_all(wanted.optimizer, PlaceKind::device) && others)
    throw_error(ErrorCode::bad_input,
                "parameters or gradients lie elsewhere where updates run on the host; set optimizer = "
                "\"host\" or a tier too");
  if (wishes.updated_here && (others || lies_in(wanted.optimizer, PlaceKind::tier)))
    throw_error(
        ErrorCode::bad_input,
        "update = \"device\" fetches optimizer state from the host's memory and finds gradients and "
        "parameters on the device; leave those there and state in the host's memory, or leave update out");
}

}  // namespace

Wishes read_wishes(const Options& options) {
  const auto shares = [&](const char* key) { return read_shares(key, options.text(key)); };
  Wishes wishes;
  wishes.lies.optimizer = shares("optimizer");
  wishes.lies.parameters = shares("parameters");
  wishes.lies.gradients = shares("gradients");
  wishes.lies.activations = shares("activations");
  if (options.has("frozen")) wishes.frozen = shares("frozen");
  if (lies_all(wishes.frozen, PlaceKind::automatic))
    throw_error(
        ErrorCode::bad_input,
        "frozen says where parameters that are not trained lie: device, host or a tier; left out, they lie "
        "where parameters do, which may be \"auto\"");
  wishes.updated_here = options.text("update") == "device";
  if (const std::string tile = options.text("tile"); tile != "auto") wishes.tiled = tile == "tensor";
  if (options.text("mode") == "auto") choose_all(wishes.lies);
  check(wishes);
  return wishes;
}

}  // namespace prun
