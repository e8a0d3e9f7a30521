#include "train/assemble/assembly.hpp"

#include <algorithm>
#include <map>

#include "plan/proof/check_ranks.hpp"
#include "plan/proof/ends.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "train/assemble/assemble.hpp"
#include "train/assemble/comm_needs.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

Recipe checked(Recipe recipe, PluginHost& plugins, Purpose purpose) {
  check_combinations(recipe, plugins, purpose);
  return recipe;
}

// Names, if the recipe leaves the device open, those that need a driver and can be planned for without it.
std::string others_to_plan_for(const Recipe& recipe, PluginHost& plugins) {
  const recipe::Entry* const named = recipe.find("device.plugin");
  if (!named || !named->at.source || named->at.source->kind != recipe::Source::Kind::ours) return {};
  for (const PluginNote& note : usable_notes(plugins.places(), "device")) {
    const std::string_view memory = trait_of(note, "plan");
    if (note.name == recipe.section("device").plugin() || memory.empty()) continue;
    if (trait_of(note, "driver").empty()) continue;
    return detail::concat("; to plan for other devices than are here: --set device.plugin=", note.name,
                          " --set device.", memory, "=MEMORY");
  }
  return {};
}

}  // namespace

PlannedRecipe::PlannedRecipe(Recipe written, PluginHost& host, std::int64_t number, Purpose for_what)
    : recipe(checked(std::move(written), host, for_what)),
      plugins(host),
      rank(number),
      purpose(for_what),
      batch(BatchArithmetic::of(recipe, plugins)),
      ops(load_ops(recipe, plugins)),
      writer(recipe, plugins, batch, ops.registry, purpose),
      evaluation_writer(recipe, plugins, batch, ops.registry, Purpose::evaluation) {}

Assembly::Assembly(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose)
    : Assembly(assemble(std::move(recipe), plugins, rank, purpose)) {}

Numbered<DeviceInterface*> Assembly::devices() const {
  Numbered<DeviceInterface*> devices;
  for (const auto& device : devices_) devices.push_back(device.get());
  return devices;
}

std::int64_t Assembly::bytes_in_memory_of(std::size_t number, const Plan& plan) const {
  const DeviceInfo& device = device_infos_[number];
  std::int64_t bytes = 0;
  for (const Layout::Range& range : plan.layout.ranges) {
    const auto of = static_cast<std::size_t>(range.place.device);
    const DeviceInfo& owner = device_infos_[of];
    if (range.place.space == Space::disk) {
      if (of == number) bytes += range.bytes();
      continue;
    }
    const bool in_host_memory = range.place.space != Space::device || owner.host_memory;
    const bool same = of == number || (owner.unit.size > 0 && owner.unit.view() == device.unit.view());
    if (in_host_memory ? device.host_memory : same) bytes += range.bytes();
  }
  return bytes;
}

std::string Assembly::plugin_of(std::size_t device) const {
  return device == 0 ? recipe().section("device").plugin() : program_->requests().more_devices[device - 1];
}

std::string Assembly::key_by_trait(std::size_t device, std::string_view trait) const {
  const std::string name = plugin_of(device);
  const std::string_view option = trait_of(of_->plugins.note("device", name), trait);
  if (option.empty()) return "";
  return detail::concat(name == plugin_of(0) ? "device" : "tier." + name, ".", option);
}

bool Assembly::is_memory_stated(std::size_t device) const {
  const std::string key = key_of_planned_memory(device);
  return !key.empty() && recipe().find(key) && recipe().number(key) > 0;
}

std::string Assembly::hint_of_more_memory(std::size_t device) const {
  if (is_memory_stated(device)) return "; " + key_of_planned_memory(device) + " says so";
  const std::string key = key_by_trait(device, "memory");
  const std::string more =
      key.empty() ? "" : "; where the machine has more than the system shows, " + key + " says so";
  return more + (device == 0 ? others_to_plan_for(recipe(), of_->plugins) : "");
}

std::vector<HeldSlice> Assembly::held_slices() const {
  return prun::held_slices(*program_, plan().instances, rank());
}

std::vector<HeldSlice> Assembly::saved_slices() const {
  const auto instances_of = [&](std::int64_t rank) -> const std::vector<Instance>& {
    return plan_of(rank).instances;
  };
  return prun::saved_slices(*program_, instances_of, rank());
}

std::string Assembly::fingerprint() const {
  std::string all;
  each_planned([&](const Program& program, const std::vector<Plan>& plans, bool) {
    for (const Plan& plan : plans) all += prun::fingerprint(program, plan);
  });
  return all;
}

// A single rank waits for no other: its own queues have been checked with the plan.
void Assembly::check_steps_end(bool stamps) const {
  if (mesh().world() == 1) return;
  each_planned([&](const Program& program, const std::vector<Plan>& plans, bool over) {
    check_steps_end(program, plans, stamps && !over);
  });
}

void Assembly::check_steps_end(const Program& program, const std::vector<Plan>& plans, bool stamps) const {
  std::map<std::pair<AxisId, std::int32_t>, QueueLimits> known;
  const auto limits_of = [&](AxisId axis, std::int32_t number) {
    const DeviceInfo& device = device_infos_[number];
    QueueLimits limits;
    limits.asynchronous = device.asynchronous;
    limits.depth = device.queue_depth;
    if (axis == no_axis) return limits;
    limits.pool = comm_of_axis(recipe(), of_->plugins, mesh().name(axis));
    CommInfo info;
    raise(make_comm(recipe(), device_info(), of_->plugins, limits.pool)->info(&info));
    limits.asynchronous &= info.enqueues;
    limits.resident = info.resident;
    return limits;
  };
  const auto limits = [&](const QueueInfo& queue) {
    const auto [entry, fresh] = known.try_emplace({queue.axis, queue.device});
    if (fresh) entry->second = limits_of(queue.axis, queue.device);
    return entry->second;
  };
  const auto plan_of = [&](int rank) -> const Plan& { return plans[stage_of(rank)]; };
  prun::check_steps_end(all_ranks(program, plan_of), {limits, stamps});
}

std::int64_t Assembly::period() const {
  const auto runs = [](const Plan& plan) {
    return std::any_of(plan.functions.begin(), plan.functions.end(), [](const PlannedFunction& function) {
      return function.kind == FunctionKind::periodic;
    });
  };
  const std::optional<PeriodicRequest>& asked = program_->requests().periodic;
  return asked && std::any_of(plans_.begin(), plans_.end(), runs) ? asked->every : 0;
}

std::int64_t Assembly::parameters() const {
  std::int64_t count = 0;
  for (Id id : program_->parameters()) {
    const Value& value = program_->value(id);
    if (value.copy_of == none) count += value.elements() * program_->segment(value.segment).repeat;
  }
  return count;
}

std::string Assembly::full_name(Id id, std::int32_t instance) const {
  return prun::full_name(*program_, id, plan().instances[instance].layer);
}

}  // namespace prun
