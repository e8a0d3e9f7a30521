// Reads the recipe's settings of offload, and has the text of its options.
#pragma once

#include "prun/options.hpp"
#include "shares.hpp"

#define PRUN_OFFLOAD_OPTIONS                                                                                 \
  "mode        | choice | each | each,auto | each: store each kind of state where the keys below say; "      \
  "auto: move what does not fit to the next place, what costs least first\n"                                 \
  "optimizer   | string | host | | Where to store master weights and moments: device, host, a tier such as " \
  "nvme, auto, or percentages of several, such as host:70, nvme:30\n"                                        \
  "update      | choice | host | host,device,auto | Where to update optimizer state that is in host "        \
  "memory: host: on its cores; device: copied there piece by piece; auto: whichever is predicted to be "     \
  "faster\n"                                                                                                 \
  "speculate   | choice | auto | auto,none | Whether updates of what is all in host memory begin before "    \
  "the "                                                                                                     \
  "norm of all gradients is known, and are undone in steps beyond optimizer.clip: auto: as many layers as "  \
  "host memory has room for; none: they wait. Results are identical\n"                                       \
  "tile        | choice | auto | auto,layer,tensor | Granularity in which updates fetch state: layer: "      \
  "buffers of three layers; tensor: of three times a layer's largest tensor; auto: tensor where layers do "  \
  "not fit\n"                                                                                                \
  "gradients   | string | device | | Where to store gradients that leave the device, at the latest for "     \
  "their updates; values as for optimizer\n"                                                                 \
  "parameters  | string | device | | Where to store parameters while they are not in use; values as for "    \
  "optimizer\n"                                                                                              \
  "frozen      | string | none   | | Where to store frozen parameters while they are not in use, whatever "  \
  "optimizer says; values as for optimizer, except auto; default: as parameters\n"                           \
  "activations | string | device | | Where to store activations saved for backward; values as for "          \
  "optimizer\n"

namespace prun {

// Says where each kind of state is stored.
struct StatePlaces {
  Shares optimizer, gradients, parameters, activations;

  bool only_state_and_activations() const {
    return all_in(gradients, PlaceKind::device) && all_in(parameters, PlaceKind::device);
  }
  friend bool operator==(const StatePlaces&, const StatePlaces&) = default;
};

struct OffloadSettings {
  StatePlaces state_places;
  Shares frozen;              // shares of parameters that are not trained; empty: as parameters
  bool speculate = true;      // whether updates may begin before the norm is known
  bool updated_here = false;  // whether the recipe's device updates
  std::optional<bool> tiled;  // nothing: as room allows

  // Says whether the planner chooses where something is stored.
  bool leaves_open() const {
    const auto open = [](const Shares& shares) { return all_in(shares, PlaceKind::automatic); };
    return open(state_places.optimizer) || open(state_places.gradients) || open(state_places.parameters) ||
           open(state_places.activations);
  }
};

// Throws bad_input for settings that do not go together.
OffloadSettings read_offload_settings(const Options& options);

}  // namespace prun
