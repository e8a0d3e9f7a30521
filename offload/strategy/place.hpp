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
  std::string tier = {};  // plugin that keeps a tier's bytes

  friend bool operator==(const Place&, const Place&) = default;
};

// Returns this project's name of what other frameworks call a place; it is empty if they have no such word.
std::string_view called_elsewhere(std::string_view word);
// Returns a place by name. Any other name of a plugin may be a tier's: the core knows whether it is. Nothing:
// the word names no place.
std::optional<Place> place_named(std::string_view word);
// Returns a text such as "in the host's memory" or "on nvme".
std::string where(const Place& place);

}  // namespace prun
