#include "train/assemble/assembly.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/machine.hpp"
#include "base/text.hpp"
#include "plan/proof/check_ranks.hpp"
#include "plan/proof/deadlock.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "train/assemble/plan_maker.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- one host

void check_units(const DeviceInfo& device, std::int64_t ranks) {
  if (device.units == 0 || ranks <= device.units) return;
  throw_error(ErrorCode::bad_input, "each of the ", ranks, " ranks takes a unit of device '",
              device.name.view(), "', and this machine has ", device.units,
              "; take as many ranks, or device.plugin = \"cpu\"");
}

// Returns the memory of ranks [first, last), or nothing if it is unknown how much the host has.
std::optional<HostMemory> host_memory_of(const Assembly& assembly, std::int64_t first, std::int64_t last) {
  const std::vector<DeviceInfo>& devices = assembly.device_infos();
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [](const DeviceInfo& device) { return device.host_memory; });
  if (found == devices.end()) return {};
  HostMemory memory{static_cast<std::size_t>(found - devices.begin()), last - first, 0, found->memory_bytes};
  if (!assembly.knows_memory_of(memory.device)) return {};
  for (std::int64_t rank = first; rank < last; ++rank)
    memory.needed +=
        assembly.bytes_in_memory_of(memory.device, assembly.plan_of(rank)) + assembly.process_bytes_of(rank);
  return memory;
}

// `key` is that of the recipe which says how many units a host has; a device that finds its own knows better.
std::int64_t ranks_by(const DeviceInfo& device, const Recipe& recipe, const std::string& key,
                      std::int64_t world) {
  const bool stated = device.units == 0 && !key.empty() && recipe.find(key) && recipe.integer(key) > 0;
  const std::int64_t units = stated ? recipe.integer(key) : device.units;
  return units > 0 ? std::min<std::int64_t>(units, world) : device.absent ? 1 : world;
}

}  // namespace

std::int64_t ranks_of_host(const DeviceInfo& device, const Recipe& recipe, PluginHost& plugins,
                           std::int64_t world) {
  const PluginNote& note = plugins.note("device", recipe.section("device").plugin());
  const std::string_view option = trait_of(note, "plan_units");
  return ranks_by(device, recipe, option.empty() ? "" : detail::concat("device.", option), world);
}

std::int64_t ranks_of_host(const Assembly& assembly) {
  return ranks_by(assembly.device_info(), assembly.recipe(), assembly.key_of_planned_units(),
                  assembly.mesh().world());
}

std::optional<std::int64_t> left_on_hosts(const Assembly& assembly) {
  const std::int64_t world = assembly.mesh().world(), each = ranks_of_host(assembly);
  std::optional<std::int64_t> least;
  for (std::int64_t first = 0; first < world; first += each) {
    const std::int64_t last = std::min(world, first + each);
    const auto memory = host_memory_of(assembly, first, last);
    if (!memory) return {};
    const std::int64_t left = (memory->there - memory->needed) / (last - first);
    least = std::min(least.value_or(left), left);
  }
  return least;
}

std::optional<HostMemory> crowded_host(const Assembly& assembly) {
  const std::int64_t world = assembly.mesh().world(), each = ranks_of_host(assembly);
  for (std::int64_t first = 0; first < world; first += each) {
    auto memory = host_memory_of(assembly, first, std::min(world, first + each));
    if (memory && !memory->fits()) return memory;
  }
  return {};
}

bool hosts_have_room(const Assembly& assembly) { return !crowded_host(assembly); }

void check_hosts_have_room(const Assembly& assembly) {
  if (!hosts_have_room(assembly))
    throw DoesNotFit(ErrorCode::bad_input, "the ranks of a host need more memory than it has");
}

void check_fits_one_host(const Assembly& assembly) {
  check_units(assembly.device_info(), assembly.mesh().world());
  const std::optional<HostMemory> memory = host_memory_of(assembly, 0, assembly.mesh().world());
  if (!memory || memory->fits()) return;
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  throw DoesNotFit(
      ErrorCode::bad_input,
      detail::concat("the ", assembly.mesh().world(), " ranks together need ", size(memory->needed),
                     ", this machine has ", size(memory->there),
                     "; take fewer ranks, a smaller model or batch.micro, or strategies that share out more",
                     assembly.hint_of_more_memory(memory->device)));
}

bool cores_are_crowded(const Assembly& assembly) {
  const DeviceInfo& device = assembly.device_info();
  return device.host_memory && ranks_of_host(assembly) * device.threads > this_machine().cores;
}

std::string crowded_cores(const Assembly& assembly) {
  if (!cores_are_crowded(assembly)) return {};
  const DeviceInfo& device = assembly.device_info();
  const std::int64_t ranks = ranks_of_host(assembly), cores = this_machine().cores;
  return detail::concat(ranks, ranks == 1 ? " rank x " : " ranks x ", device.threads,
                        device.threads == 1 ? " thread" : " threads", " share ", cores,
                        cores == 1 ? " core" : " cores",
                        ", and take turns: a step takes longer than it would with a core for each");
}

namespace {

// ------------------------------------------------------------------- assemble

bool uses_drives(const Assembly& assembly) {
  return std::any_of(assembly.plans().begin(), assembly.plans().end(), has_drives);
}

bool further_memory_suffices(const Assembly& assembly) {
  return missing_further_memory(assembly).empty() && hosts_have_room(assembly);
}

bool there_is_room(const Assembly& assembly) {
  return bytes_needed(assembly) <= memory_limit(assembly) && further_memory_suffices(assembly);
}

// Searches for a plan that fits. The plan is exact, so whether it fits is known once it is made. What
// strategies leave to the planner is tried in their order.
class FittingSearch {
 public:
  explicit FittingSearch(PlanMaker& maker) : maker_(maker) {}

  // Throws DoesNotFit.
  Assembly run();
  // Adds the other kinds of steps to the plan that was found.
  Assembly add_other_steps(Assembly found);

 private:
  bool fits_in_turn(std::size_t way);
  bool fits_everywhere(WayToFit way);
  bool fits_ranks(WayToFit way);
  bool fits(const PlannedChoice& choice);
  void make_with_room(const PlannedChoice& choice);
  bool must_speculate_less();
  WayToFit ways() const { return made_->unlowered().requests().ways_to_fit; }
  template <class Try>
  bool tried_out(const Try& fits);

  PlanMaker& maker_;
  std::optional<Assembly> made_;  // assembly of the last try
  PlannedChoice choice_;          // choices of the last try
  SpareMemory spare_;
  NotFitting tried_;                 // findings while no plan fitted
  std::optional<WayToFit> crowded_;  // first way that fits each rank, though not all ranks of a host
};

// Tries the ways in turn, and passes over those that cannot be combined with the rest of the recipe. If no
// way leaves hosts with room for all their ranks, it takes the first that fits each rank: the launcher knows
// how many ranks a host has.
Assembly FittingSearch::run() {
  if (fits_in_turn(0)) return std::move(*made_);
  const std::size_t all = ways().strategies;
  for (std::size_t way = 1; way < all; ++way)
    if (tried_out([&] { return fits_in_turn(way); })) return std::move(*made_);
  if (!crowded_ || !fits_ranks(*crowded_)) refuse_memory(*made_, tried_);
  return std::move(*made_);
}

// Says whether something fits; what is refused does not.
template <class Try>
bool FittingSearch::tried_out(const Try& fits) {
  try {
    return fits();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    if (tried_.refused.empty()) tried_.refused = error.what();
    return false;
  }
}

// Tries a way of the strategies with each way of what the core leaves open beside it.
bool FittingSearch::fits_in_turn(std::size_t way) {
  if (fits_everywhere({way, 0})) return true;
  const std::size_t all = ways().sums;
  for (std::size_t sums = 1; sums < all; ++sums)
    if (tried_out([&] { return fits_everywhere({way, sums}); })) return true;
  return false;
}

bool FittingSearch::fits_everywhere(WayToFit way) {
  if (!fits_ranks(way)) return false;
  if ((ways().strategies <= 1 && ways().sums <= 1) || hosts_have_room(*made_)) return true;
  if (!crowded_) crowded_ = way;
  return false;
}

// Says whether a way fits. If the program leaves it to the planner what backward computes again, the least
// that suffices is taken; each try starts from a fresh program: strategies after that see the choice.
bool FittingSearch::fits_ranks(WayToFit way) {
  if (fits({{}, way})) return true;
  if (!chooses_recompute(made_->unlowered())) return false;
  const std::vector<RecomputeChoice> choices = recompute_choices(made_->unlowered());
  if (!fits({choices.back(), way})) return false;
  return std::any_of(choices.begin() + 1, choices.end(), [&](const RecomputeChoice& recompute) {
    return fits({recompute, way});
  });
}

bool FittingSearch::fits(const PlannedChoice& choice) {
  make_with_room(choice);
  const std::int64_t bytes = bytes_needed(*made_);
  if (tried_.needed == 0) tried_.needed = tried_.least = bytes;
  tried_.least = std::min(tried_.least, bytes);
  if (bytes > memory_limit(*made_)) return false;
  const std::string further = missing_further_memory(*made_);
  if (tried_.further.empty()) tried_.further = further;
  return further.empty();
}

// Makes the plan with memory for all that keeps drives busy, or as little as it takes, and for as many
// speculative updates as other uses leave room for.
void FittingSearch::make_with_room(const PlannedChoice& choice) {
  choice_ = choice;
  spare_ = {true, std::numeric_limits<std::int32_t>::max()};
  do maker_.make(choice, spare_, made_);
  while (must_speculate_less());
  spare_.far_ahead = !uses_drives(*made_) || there_is_room(*made_);
  if (!spare_.far_ahead) maker_.make(choice, spare_, made_);
}

// Lowers the number of speculative updates to what fits; false if all that are planned do.
bool FittingSearch::must_speculate_less() {
  std::int32_t planned = 0;
  for (const Plan& plan : made_->plans()) planned = std::max(planned, plan.speculated());
  spare_.speculated = std::min(spare_.speculated, speculated_that_fit(*made_));
  return spare_.speculated < planned;
}

// The other kinds do less than the full one and hardly ever need more memory, so the plan is found without
// them. If they do, fewer updates are speculative.
Assembly FittingSearch::add_other_steps(Assembly found) {
  made_.emplace(std::move(found));
  maker_.plan_other_steps(*made_, spare_);
  while (!made_->other_steps().empty() && must_speculate_less()) {
    maker_.make(choice_, spare_, made_);
    maker_.plan_other_steps(*made_, spare_);
  }
  if (made_->other_steps().empty()) return std::move(*made_);
  tried_.needed = tried_.least = bytes_needed(*made_);
  tried_.further = missing_further_memory(*made_);
  if (tried_.needed > memory_limit(*made_) || !tried_.further.empty()) refuse_memory(*made_, tried_);
  return std::move(*made_);
}

}  // namespace

Assembly assemble(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose) {
  PlanMaker maker(std::make_shared<PlannedRecipe>(std::move(recipe), plugins, rank, purpose));
  FittingSearch search(maker);
  Assembly assembly = search.add_other_steps(search.run());
  maker.prove(assembly);
  maker.leave_rest_to_saves(assembly);
  assembly.check_no_deadlock(false);
  return assembly;
}

Assembly assemble_unproven(Recipe recipe, PluginHost& plugins) {
  PlanMaker maker(std::make_shared<PlannedRecipe>(std::move(recipe), plugins, 0, Purpose::training));
  return FittingSearch(maker).run();
}

namespace {

// ------------------------------------------------------------------- assembly

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
void Assembly::check_no_deadlock(bool stamps) const {
  if (mesh().world() == 1) return;
  each_planned([&](const Program& program, const std::vector<Plan>& plans, bool over) {
    check_no_deadlock(program, plans, stamps && !over);
  });
}

void Assembly::check_no_deadlock(const Program& program, const std::vector<Plan>& plans, bool stamps) const {
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
  prun::check_no_deadlock(all_ranks(program, plan_of), {limits, stamps});
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
