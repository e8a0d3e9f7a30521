#include "ways.hpp"

#include <algorithm>

namespace prun {
namespace {

const Place on_device{PlaceKind::device}, in_host_memory{PlaceKind::host};

class Ways {
 public:
  Ways(const Wishes& wishes, const std::vector<std::string>& tiers) : wishes_(wishes) {
    for (const std::string& tier : tiers) places_.push_back({PlaceKind::tier, tier});
  }

  // State lies as far away as others, or further.
  std::vector<Way> all() {
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

  // What is said stays so.
  void add(Lies lies) {
    for (Shares Lies::*const what :
         {&Lies::optimizer, &Lies::gradients, &Lies::parameters, &Lies::activations})
      if (!lies_all(wishes_.lies.*what, PlaceKind::automatic)) lies.*what = wishes_.lies.*what;
    if (!goes_together(lies)) return;
    const bool state_stays = lies_all(lies.optimizer, PlaceKind::device);
    for (const bool tiled : {false, true})
      if (wishes_.tiled ? tiled == *wishes_.tiled : !state_stays || !tiled)
        if (const Way way{lies, tiled}; std::find(ways_.begin(), ways_.end(), way) == ways_.end())
          ways_.push_back(way);
  }

  bool goes_together(const Lies& lies) const {
    const bool state_first = lies_all(wishes_.lies.optimizer, PlaceKind::automatic) &&
                             lies_all(wishes_.lies.activations, PlaceKind::automatic);
    if (lies_all(lies.optimizer, PlaceKind::device) &&
        (!lies.only_state_and_activations() ||
         (state_first && !lies_all(lies.activations, PlaceKind::device))))
      return false;
    return !wishes_.updated_here ||
           (lies.only_state_and_activations() && !lies_in(lies.optimizer, PlaceKind::tier));
  }

  const Wishes& wishes_;
  std::vector<Place> places_ = {in_host_memory};  // beside the device, the fastest first
  std::vector<Way> ways_;
};

// Returns "optimizer state and gradients lie in the host's memory", or nothing.
std::string said_of(const Place& place, const Lies& lies) {
  const Shares all{{place}};
  std::vector<std::string> there;
  if (lies.optimizer == all) there.emplace_back("optimizer state");
  if (lies.gradients == all) there.emplace_back("gradients");
  if (lies.activations == all) there.emplace_back("activations");
  if (lies.parameters == all) there.emplace_back("parameters");
  std::string text;
  for (std::size_t i = 0; i < there.size(); ++i)
    text += (i == 0 ? "" : i + 1 == there.size() ? " and " : ", ") + there[i];
  const bool one = there.size() == 1 && lies.optimizer == all;
  return there.empty() ? "" : text + (one ? " lies " : " lie ") + where(place);
}

// Returns all places where something is stored, each once, in the order of the recipe.
std::vector<Place> places_of(const Lies& lies) {
  std::vector<Place> places = {in_host_memory};
  for (const Shares* const shares : {&lies.optimizer, &lies.gradients, &lies.activations, &lies.parameters})
    if (lies_all(*shares, PlaceKind::tier) &&
        std::find(places.begin(), places.end(), shares->front().place) == places.end())
      places.push_back(shares->front().place);
  return places;
}

}  // namespace

std::vector<Way> ways_of(const Wishes& wishes, const std::vector<std::string>& tiers) {
  return Ways(wishes, tiers).all();
}

namespace {

// Returns all of them where `frozen` is empty.
std::vector<Sized> parameters_of(ProgramRef program, const Shares& frozen, bool trained) {
  std::vector<Sized> all = tensors_of(program, Role::parameter);
  if (frozen.empty() && !trained) return {};
  if (!frozen.empty())
    std::erase_if(all, [&](const Sized& one) { return program.value(one.id).frozen == trained; });
  return all;
}

}  // namespace

Spreads::Spreads(ProgramRef program, const Users& users, const Lies& lies, const Shares& frozen_lie)
    : states(states_of(program, users), lies.optimizer),
      parameters(parameters_of(program, frozen_lie, true), lies.parameters),
      gradients(tensors_of(program, Role::gradient), lies.gradients),
      frozen(parameters_of(program, frozen_lie, false),
             frozen_lie.empty() ? Shares{{Place{PlaceKind::device}}} : frozen_lie),
      activations(lies.activations) {}

std::string text_of(const Way& way, const Spreads& spreads) {
  std::vector<std::string> parts = {
      spreads.states.in_one_place() ? "" : "optimizer state lies " + spreads.states.said(),
      spreads.parameters.in_one_place() ? "" : "parameters lie " + spreads.parameters.said(),
      spreads.frozen.in_one_place() ? "" : "frozen parameters lie " + spreads.frozen.said(),
      spreads.gradients.in_one_place() ? "" : "gradients lie " + spreads.gradients.said(),
      spreads.activations.size() == 1
          ? ""
          : "activations lie " + said(spreads.activations) + ", as near as whole tensors of a layer come"};
  for (const Place& place : places_of(way.lies)) parts.push_back(said_of(place, way.lies));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() || part.empty() ? "" : "; ") + part;
  return "offload: " + (text.empty() ? "all lies on the device" : text) +
         (way.tiled ? ", updated tensor by tensor" : "");
}

}  // namespace prun
