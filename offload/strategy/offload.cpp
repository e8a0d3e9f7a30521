// Offload puts what a rank's own device has no room for into the host's memory, or on drives.
//   optimizer = "host"   master copies and moments lie there, and updates run on the host's cores: gradients
//                        come to them and parameters go back
//                        (update = "device": state comes to the device in turn, and goes back; "auto" is
//                        settled by the core, and stands for "host" where nobody did)
//   optimizer = "nvme"   updates run there too, but master copies and moments lie on drives: they come to
//                        memory for an instance's update and go back behind it; any other tier likewise, by
//                        its plugin's name
//   gradients = "host"   gradients leave the device as soon as a segment's backward has finished them
//   parameters = "host"  parameters are fetched ahead of each use, and updated where they lie
//   activations = "host" what backward reads of forward leaves meanwhile
//   frozen = "host"      parameters that are not trained are fetched ahead of each use, wherever the
//   optimizer is
// The last four are "nvme" likewise: then what updates need of them comes to memory and goes back as state
// does.
//   tile = "tensor"      what updates need comes to memory in pieces of a layer, which takes less of it
//   "host:70, nvme:30"   of any of the four: per cent, in whole tensors, so that each layer has some here and
//                        some there
//   "auto"               as "device" where the plan fits like that, else as the next that does: the host's
//                        memory, then the tiers that the recipe has tables for, in its order
//
// Which values those are follows from who touches them: optimizer state that only updates touch lies with
// them; what others touch too is copied there before the updates, and what those change of it is copied back.
// The few numbers that all updates read (learning rate, clip factor, keep) come there once, before the first
// update: the next step may write its own while updates still run.
#include <map>
#include <optional>

#include "candidates.hpp"
#include "prun/plugin.hpp"
#include "speculation.hpp"
#include "updates.hpp"

namespace prun {
namespace {

// Maps the places of a recipe to the spaces of a rank's devices.
class Spaces {
 public:
  Spaces(ProgramRef program, const StatePlaces& state_places, const Shares& frozen)
      : host_(program.device("cpu")) {
    for (const Shares* const shares : {&state_places.optimizer, &state_places.gradients,
                                       &state_places.parameters, &state_places.activations, &frozen})
      for (const Share& share : *shares)
        if (const std::string& tier = share.place.tier; !tier.empty() && tiers_.count(tier) == 0)
          tiers_[tier] = program.tier(tier);
  }

  // Returns the device whose memory is the host's, which all this takes.
  std::int32_t host() const { return host_; }
  // Returns the space for what the device fetches or frees, so that host memory is pinned; nothing: its own
  // memory.
  std::optional<MemoryPlace> beside_device(const Place& place) const {
    if (place.kind == PlaceKind::device) return {};
    return place.kind == PlaceKind::tier ? MemoryPlace{tiers_.at(place.tier), Space::disk} : pinned;
  }
  // Returns the space for what updates alone touch: on the host's cores they reach any of its memory.
  MemoryPlace of_state(const Place& place, bool updated_here) const {
    if (place.kind == PlaceKind::host && !updated_here) return {host_, Space::host};
    return beside_device(place).value_or(MemoryPlace{});
  }

 private:
  std::int32_t host_;
  std::map<std::string, std::int32_t> tiers_;  // devices of tiers by plugin
};

void share_activations(ProgramRef program, const Shares& shares, const Spaces& spaces) {
  std::vector<SavedShare> saved;
  for (const Share& share : shares)
    saved.push_back({spaces.beside_device(share.place).value_or(MemoryPlace{}), share.percent});
  const std::vector<Segment> segments = program.segments();
  for (std::size_t i = 1; i < segments.size(); ++i) segments[i].share_saved(saved);
}

RolePlaces stored_places_of(RolePlaces stored_places, const Spread& spread, const Shares& state_places,
                            const Spaces& spaces) {
  for (const auto& [value, place] : spread.places())
    if (const auto space = spaces.beside_device(place)) stored_places.of_whole[value] = *space;
  stored_places.parts_lie_alike = spread.in_one_place();
  if (stored_places.parts_lie_alike)
    stored_places.of_parts = spaces.beside_device(state_places.front().place);
  return stored_places;
}

class Offload final : public Strategy {
 public:
  explicit Offload(const Options& options) : settings_(read_offload_settings(options)) {}

  void apply(Phase, ProgramRef program) override {
    const Users users(program);
    const auto [state_places, tiled] = chosen(program, users);
    const bool state_stays = all_in(state_places.optimizer, PlaceKind::device),
               frozen_stay = settings_.frozen.empty() || all_in(settings_.frozen, PlaceKind::device);
    if (state_stays && frozen_stay && all_in(state_places.activations, PlaceKind::device)) return;
    const Spaces spaces(program, state_places, settings_.frozen);
    const Spreads spreads(program, users, state_places, settings_.frozen);
    share_activations(program, spreads.activations, spaces);
    for (const auto& [value, place] : spreads.frozen.places())
      if (const auto space = spaces.beside_device(place)) program.place(value, *space);
    if (state_stays) return;
    UpdatePlaces stored_places{
        {},
        stored_places_of({Role::parameter, "parameters"}, spreads.parameters, state_places.parameters,
                         spaces),
        stored_places_of({Role::gradient, "gradients"}, spreads.gradients, state_places.gradients, spaces)};
    for (const auto& [value, place] : spreads.states.places())
      stored_places.states[value] = spaces.of_state(place, settings_.updated_here);
    update_elsewhere(program, settings_.updated_here ? own_device : spaces.host(), stored_places, tiled);
    for (const RolePlaces* const of : {&stored_places.parameters, &stored_places.gradients})
      for (const auto& [value, place] : of->of_whole) program.place(value, place);
    if (settings_.speculate && !settings_.updated_here && program.step_context().norm_limit > 0)
      speculate_updates(program, spaces.host());
  }

 private:
  // Chooses a candidate; shares that the recipe states exactly need no choice.
  Candidate chosen(ProgramRef program, const Users& users) const {
    const std::vector<Candidate> candidates =
        candidates_of(settings_, settings_.leaves_open() ? program.tiers() : std::vector<std::string>{});
    std::vector<std::string> texts;
    bool exact = true;
    for (const Candidate& candidate : candidates) {
      const Spreads spreads(program, users, candidate.state_places, settings_.frozen);
      exact &= spreads.in_one_place();
      texts.push_back(text_of(candidate, spreads));
    }
    return exact && candidates.size() == 1 ? candidates.front() : candidates[program.choose_to_fit(texts)];
  }

  OffloadSettings settings_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Offload, "offload", "0.1.0",
    "Moves what does not fit on the device to host memory or drives",
    "phase=memory; tune=exact; varies=mode:each|auto, update:host|device, "
    "optimizer:host|(device:75, host:25)|(device:50, host:50)|(device:25, host:75), "
    "activations:device|(device:50, host:50)|host, gradients:device|(device:50, host:50)|host, "
    "parameters:device|(device:50, host:50)|host; "
    "also=cpu_offload,zero-offload,zero-infinity; frees=optimizer:host, gradients:host, "
    "parameters:host, activations:host; timed=update; "
    "bench=none mode:each update:host optimizer:device parameters:device gradients:device "
    "activations:device, optimizer mode:each update:host optimizer:host parameters:device gradients:device "
    "activations:device, all mode:each update:host optimizer:host parameters:host gradients:host "
    "activations:host, nvme-optimizer mode:each update:host optimizer:nvme parameters:device "
    "gradients:device activations:device, nvme-all mode:each update:host optimizer:nvme parameters:nvme "
    "gradients:nvme activations:nvme",
    PRUN_OFFLOAD_OPTIONS);
