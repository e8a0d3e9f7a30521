// Watches calls into plugins that must return, and acts on one that does not.
#pragma once

#include <memory>

#include "cli/overdue_watch.hpp"
#include "launch/flight.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Names, while it lives, a plugin that does not return within run.hang_limit on standard error and ends the
// process, unless other ranks find that out themselves. `flight`, which must outlive it, says what a device
// was doing. Null: nothing is watched.
std::unique_ptr<OverdueWatch> watch_over_plugins(const Recipe& recipe, const FlightRecorder& flight);

}  // namespace prun
