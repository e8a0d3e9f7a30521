// Lists what may be stored where, as far as the recipe leaves it open, and reports the choice.
#pragma once

#include "offload_settings.hpp"
#include "spread.hpp"

namespace prun {

// Describes one way. If it is tiled, a layer's updates get what they need in memory in pieces, which takes
// less of it and reads less ahead.
struct Candidate {
  StatePlaces state_places;
  bool tiled = false;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// Returns possible combinations, cheapest first: optimizer state moves once a step, parameters with each use,
// and tiers, in that order, are slower than memory.
std::vector<Candidate> candidates_of(const OffloadSettings& settings, const std::vector<std::string>& tiers);

// Says which tensors of a program are stored where.
struct Spreads {
  Spread states, parameters, gradients, frozen;
  // These tensors are known only once the program is lowered.
  Shares activations;

  // `frozen` is for parameters that are not trained; if it is empty, those go with the others.
  Spreads(ProgramRef program, const Users& users, const StatePlaces& state_places, const Shares& frozen);

  bool in_one_place() const {
    return frozen.in_one_place() && states.in_one_place() && parameters.in_one_place() &&
           gradients.in_one_place() && activations.size() == 1;
  }
};

// Returns a text such as "offload: optimizer state and gradients lie in the host's memory".
std::string text_of(const Candidate& candidate, const Spreads& spreads);

}  // namespace prun
