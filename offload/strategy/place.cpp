#include "place.hpp"

namespace prun {
namespace {

constexpr const char* drives = "nvme";

}  // namespace

std::optional<Place> place_named(std::string_view word) {
  if (word == "device") return Place{PlaceKind::device};
  if (word == "host") return Place{PlaceKind::host};
  if (word == "auto") return Place{PlaceKind::automatic};
  if (word == drives) return Place{PlaceKind::tier, drives};
  return {};
}

std::string where(const Place& place) {
  switch (place.kind) {
    case PlaceKind::host: return "in the host's memory";
    case PlaceKind::tier: return "on drives";
    default: return "on the device";
  }
}

}  // namespace prun
