// Makes updates run elsewhere, or over what is stored elsewhere: what they need is copied to where they run
// and copied back after them.
#pragma once

#include <map>
#include <optional>

#include "prun/plugin.hpp"

namespace prun {

constexpr std::int32_t own_device = 0;  // number of the recipe's device
constexpr MemoryPlace pinned{own_device, Space::pinned};

// Says where values of a role are stored; nothing means on the device.
struct RolePlaces {
  Role role;
  const char* name;
  std::map<Id, MemoryPlace> of_whole = {};
  std::optional<MemoryPlace> of_parts = {};  // place of the parts that ranks keep
  bool parts_lie_alike = true;               // otherwise there is no such place
};

struct UpdatePlaces {
  std::map<Id, MemoryPlace> states;  // places of what updates alone touch
  RolePlaces parameters, gradients;
};

// `device` runs them. `tiled` means that not all that the updates of a layer need has to be in memory at
// once.
void update_elsewhere(ProgramRef program, std::int32_t device, const UpdatePlaces& stored_places, bool tiled);

}  // namespace prun
