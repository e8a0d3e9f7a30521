// Names a place for values, as the recipe does: on the recipe's device, in the host's memory, on a tier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace prun {

enum class PlaceKind : std::uint8_t { device, host, tier, automatic };

struct Place {
  PlaceKind kind = PlaceKind::device;
  std::string tier = {};  // the plugin that keeps a tier's bytes

  friend bool operator==(const Place&, const Place&) = default;
};

// What other frameworks call a place, by its name here; empty: they have no such word.
std::string_view called_elsewhere(std::string_view word);
// Any other name of a plugin may be a tier's: whether it is, the core knows. Nothing: the word names no
// place.
std::optional<Place> place_named(std::string_view word);
// Returns "in the host's memory" or "on nvme".
std::string where(const Place& place);

}  // namespace prun
