// Lists what may be stored where, as far as the recipe leaves it open, and reports the choice.
#pragma once

#include "offload_settings.hpp"
#include "spread.hpp"

namespace prun {

// Tiled: what updates need of a layer comes to memory in pieces, which takes less of it and reads less ahead.
struct Candidate {
  StatePlaces state_places;
  bool tiled = false;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What may go together, cheapest first: optimizer state moves once a step, parameters with each use, and
// tiers, in that order, are slower than memory.
std::vector<Candidate> candidates_of(const OffloadSettings& settings, const std::vector<std::string>& tiers);

// Says which tensors of a program are stored where.
struct Spreads {
  Spread states, parameters, gradients, frozen;
  // The tensors of these are known only once the program is lowered.
  Shares activations;

  // `frozen`: of parameters that are not trained; empty: those go with the others.
  Spreads(ProgramRef program, const Users& users, const StatePlaces& state_places, const Shares& frozen);

  bool in_one_place() const {
    return frozen.in_one_place() && states.in_one_place() && parameters.in_one_place() &&
           gradients.in_one_place() && activations.size() == 1;
  }
};

// Returns "offload: optimizer state and gradients lie in the host's memory"
std::string text_of(const Candidate& candidate, const Spreads& spreads);

}  // namespace prun
