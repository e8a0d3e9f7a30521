// Reads the recipe's settings of offload, and has the text of its options.
#pragma once

#include "prun/options.hpp"
#include "shares.hpp"

#define PRUN_OFFLOAD_OPTIONS                                                                                 \
  "mode        | choice | each | each,auto | each: as said below; auto: what the plan has no room for "      \
  "goes to the next place, what costs least first\n"                                                         \
  "optimizer   | string | host | | Where master copies and moments lie: device, host, the name of a tier's " \
  "plugin such as nvme, auto, or per cent in several, such as host:70, nvme:30\n"                            \
  "update      | choice | host | host,device,auto | What updates state in the host's memory: its cores, or " \
  "the device, to which it comes in turn; auto: what is predicted to take less time\n"                       \
  "tile        | choice | auto | auto,layer,tensor | How much of what updates need comes to memory at a "    \
  "time: three layers, or three times a layer's largest tensor; auto: tensors where layers do not fit\n"     \
  "gradients   | string | device | | Where gradients lie once a step's are complete: as optimizer\n"         \
  "parameters  | string | device | | Where parameters lie while nobody computes with them: as optimizer\n"   \
  "frozen      | string | none   | | Where parameters that are not trained lie while nobody computes with "  \
  "them, wherever the optimizer is: as optimizer, but auto; otherwise as parameters\n"                       \
  "activations | string | device | | Where what backward reads of forward lies in between: as optimizer\n"

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
