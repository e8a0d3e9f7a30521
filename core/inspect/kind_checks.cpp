#include "inspect/kind_checks.hpp"

#include "plan/pipeline/order.hpp"
#include "plan/pipeline/trial.hpp"

namespace prun {
namespace {

std::string check_schedule(void* object, const PluginNote& note) {
  const auto trait = note.traits.find("backward");
  const bool split = splits_backward(trait == note.traits.end() ? "" : trait->second, note.name);
  return try_schedule(*static_cast<ScheduleInterface*>(object), split, note.name);
}

}  // namespace

std::vector<KindCheck> kind_checks() {
  return {
      {"schedule", "gives every small shape it accepts an order that is complete and ends", check_schedule}};
}

}  // namespace prun
