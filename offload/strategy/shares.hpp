// Says where optimizer state, parameters, gradients or activations are stored, as the recipe states it:
// "host", or in per cent "host:70, nvme:30".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "place.hpp"

namespace prun {

struct Share {
  Place place;
  int percent = 100;

  friend bool operator==(const Share&, const Share&) = default;
};
using Shares = std::vector<Share>;  // a single place may also be automatic

// Throws bad_input for what is no place, and for per cent that do not add up to 100; `key` is the option's.
Shares read_shares(std::string_view key, const std::string& text);
// Says whether there is one place alone, of that kind.
bool all_in(const Shares& shares, PlaceKind kind);
// Says whether one of them, or all, is of that kind.
bool lies_in(const Shares& shares, PlaceKind kind);
// Returns a text such as "70 % in the host's memory and 30 % on nvme".
std::string said(const Shares& shares);

}  // namespace prun
