#include "place.hpp"

namespace prun {
namespace {

bool may_be_a_tier(std::string_view word) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  return !word.empty() && called_elsewhere(word).empty() &&
         word.find_first_not_of(letters) == std::string_view::npos;
}

}  // namespace

std::string_view called_elsewhere(std::string_view word) {
  if (word == "cpu") return "host";
  if (word == "gpu" || word == "cuda" || word == "none") return "device";
  return {};
}

std::optional<Place> place_named(std::string_view word) {
  if (word == "device") return Place{PlaceKind::device};
  if (word == "host") return Place{PlaceKind::host};
  if (word == "auto") return Place{PlaceKind::automatic};
  if (may_be_a_tier(word)) return Place{PlaceKind::tier, std::string(word)};
  return {};
}

std::string where(const Place& place) {
  switch (place.kind) {
    case PlaceKind::host: return "in the host's memory";
    case PlaceKind::tier: return "on " + place.tier;
    default: return "on the device";
  }
}

}  // namespace prun
