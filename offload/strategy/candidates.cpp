#include "candidates.hpp"

#include <algorithm>

namespace prun {
namespace {

const Place on_device{PlaceKind::device}, in_host_memory{PlaceKind::host};

class Candidates {
 public:
  Candidates(const OffloadSettings& settings, const std::vector<std::string>& tiers) : settings_(settings) {
    for (const std::string& tier : tiers) places_.push_back({PlaceKind::tier, tier});
  }

  // Returns all candidates, in which state lies as far away as others, or further.
  std::vector<Candidate> all() {
    add(on_device, in_host_memory);
    for (std::size_t state = 0; state < places_.size(); ++state)
      for (std::size_t others = 0; others <= state; ++others) add(places_[state], places_[others]);
    return ways_;
  }

 private:
  void add(const Place& state, const Place& others) {
    for (const Place& parameters : {on_device, others})
      for (const Place& activations : {on_device, others})
        for (const Place& gradients : {on_device, others})
          add({{{state}}, {{gradients}}, {{parameters}}, {{activations}}});
  }

  // Adds a candidate; what the recipe states stays so.
  void add(StatePlaces state_places) {
    for (Shares StatePlaces::*const what : {&StatePlaces::optimizer, &StatePlaces::gradients,
                                            &StatePlaces::parameters, &StatePlaces::activations})
      if (!all_in(settings_.state_places.*what, PlaceKind::automatic))
        state_places.*what = settings_.state_places.*what;
    if (!goes_together(state_places)) return;
    const bool state_stays = all_in(state_places.optimizer, PlaceKind::device);
    for (const bool tiled : {false, true})
      if (settings_.tiled ? tiled == *settings_.tiled : !state_stays || !tiled)
        if (const Candidate candidate{state_places, tiled};
            std::find(ways_.begin(), ways_.end(), candidate) == ways_.end())
          ways_.push_back(candidate);
  }

  bool goes_together(const StatePlaces& state_places) const {
    const bool state_first = all_in(settings_.state_places.optimizer, PlaceKind::automatic) &&
                             all_in(settings_.state_places.activations, PlaceKind::automatic);
    if (all_in(state_places.optimizer, PlaceKind::device) &&
        (!state_places.only_state_and_activations() ||
         (state_first && !all_in(state_places.activations, PlaceKind::device))))
      return false;
    return !settings_.updated_here ||
           (state_places.only_state_and_activations() && !lies_in(state_places.optimizer, PlaceKind::tier));
  }

  const OffloadSettings& settings_;
  std::vector<Place> places_ = {in_host_memory};  // places beside the device, the fastest first
  std::vector<Candidate> ways_;
};

// Returns a text such as "optimizer state and gradients lie in the host's memory", or nothing.
std::string said_of(const Place& place, const StatePlaces& state_places) {
  const Shares all{{place}};
  std::vector<std::string> there;
  if (state_places.optimizer == all) there.emplace_back("optimizer state");
  if (state_places.gradients == all) there.emplace_back("gradients");
  if (state_places.activations == all) there.emplace_back("activations");
  if (state_places.parameters == all) there.emplace_back("parameters");
  std::string text;
  for (std::size_t i = 0; i < there.size(); ++i)
    text += (i == 0 ? "" : i + 1 == there.size() ? " and " : ", ") + there[i];
  const bool one = there.size() == 1 && state_places.optimizer == all;
  return there.empty() ? "" : text + (one ? " lies " : " lie ") + where(place);
}

// Returns all places where something is stored, each once, in the order of the recipe.
std::vector<Place> places_of(const StatePlaces& state_places) {
  std::vector<Place> places = {in_host_memory};
  for (const Shares* const shares : {&state_places.optimizer, &state_places.gradients,
                                     &state_places.activations, &state_places.parameters})
    if (all_in(*shares, PlaceKind::tier) &&
        std::find(places.begin(), places.end(), shares->front().place) == places.end())
      places.push_back(shares->front().place);
  return places;
}

}  // namespace

std::vector<Candidate> candidates_of(const OffloadSettings& settings, const std::vector<std::string>& tiers) {
  return Candidates(settings, tiers).all();
}

namespace {

// Returns all parameters if `frozen` is empty.
std::vector<Sized> parameters_of(ProgramRef program, const Shares& frozen, bool trained) {
  std::vector<Sized> all = tensors_of(program, Role::parameter);
  if (frozen.empty() && !trained) return {};
  if (!frozen.empty())
    std::erase_if(all, [&](const Sized& one) { return program.value(one.id).frozen == trained; });
  return all;
}

}  // namespace

Spreads::Spreads(ProgramRef program, const Users& users, const StatePlaces& state_places,
                 const Shares& frozen_places)
    : states(states_of(program, users), state_places.optimizer),
      parameters(parameters_of(program, frozen_places, true), state_places.parameters),
      gradients(tensors_of(program, Role::gradient), state_places.gradients),
      frozen(parameters_of(program, frozen_places, false),
             frozen_places.empty() ? Shares{{Place{PlaceKind::device}}} : frozen_places),
      activations(state_places.activations) {}

std::string text_of(const Candidate& candidate, const Spreads& spreads) {
  std::vector<std::string> parts = {
      spreads.states.in_one_place() ? "" : "optimizer state lies " + spreads.states.said(),
      spreads.parameters.in_one_place() ? "" : "parameters lie " + spreads.parameters.said(),
      spreads.frozen.in_one_place() ? "" : "frozen parameters lie " + spreads.frozen.said(),
      spreads.gradients.in_one_place() ? "" : "gradients lie " + spreads.gradients.said(),
      spreads.activations.size() == 1
          ? ""
          : "activations lie " + said(spreads.activations) + ", as near as whole tensors of a layer come"};
  for (const Place& place : places_of(candidate.state_places))
    parts.push_back(said_of(place, candidate.state_places));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() || part.empty() ? "" : "; ") + part;
  return "offload: " + (text.empty() ? "all lies on the device" : text) +
         (candidate.tiled ? ", updated tensor by tensor" : "");
}

}  // namespace prun
