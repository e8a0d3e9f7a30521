#include "inspect/kind_checks.hpp"

#include "plan/pipeline/order.hpp"
#include "plan/pipeline/trial.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

std::string check_schedule(void* object, const PluginNote& note) {
  const bool split = trait_of(note, "backward") == "split";
  return try_schedule(*static_cast<ScheduleInterface*>(object), split, note.name);
}

}  // namespace

std::vector<KindCheck> kind_checks() {
  return {
      {"schedule", "gives every small shape it accepts an order that is complete and ends", check_schedule}};
}

}  // namespace prun
