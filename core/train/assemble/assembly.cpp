#include "train/assemble/assembly.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "placement/moves.hpp"
#include "plan/check_ranks.hpp"
#include "plan/lasting.hpp"
#include "plan/launch_limit.hpp"
#include "plan/make_plan.hpp"
#include "plan/work.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "simulate/ends.hpp"
#include "train/assemble/data_memory.hpp"
#include "train/assemble/does_not_fit.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
Assembly::Assembly(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose)
    : recipe_(std::move(recipe)), plugins_(plugins), rank_(rank), purpose_(purpose) {
  check_combinations(recipe_, plugins_);
  batch_ = BatchArithmetic::of(recipe_, plugins_);
  ops_ = load_ops(recipe_, plugins_);
  writer_.emplace(recipe_, plugins_, batch_, ops_.registry, purpose_);
  add_device(plugins_.create<DeviceInterface>("device", recipe_.section("device")));
  refuse_tier();
  make_fitting_plan();
  check_steps_end(false);
}

void Assembly::refuse_tier() const {
  if (!device_info().tier) return;
  Diagnostics problems;
  problems.add(recipe_.problem("device.plugin", "'" + recipe_.section("device").plugin() +
                                                    "' keeps bytes and computes nothing; name a device that "
                                                    "computes, and this one where a strategy asks for it"));
  problems.throw_if_any();
}

void Assembly::add_device(std::shared_ptr<DeviceInterface> device) {
  raise(device->info(&device_infos_.emplace_back()));
  devices_.push_back(std::move(device));
}

// Those that the program asks for beside the recipe's: with its options where they are of the same plugin.
void Assembly::make_devices() {
  const RecipeSection section = recipe_.section("device");
  devices_.resize(1);
  device_infos_.resize(1);
  for (const std::string& plugin : unlowered_->requests().more_devices)
    add_device(plugin == section.plugin() ? plugins_.create<DeviceInterface>("device", section)
                                          : plugins_.create<DeviceInterface>("device", plugin, recipe_));
}

std::vector<DeviceInterface*> Assembly::devices() const {
  std::vector<DeviceInterface*> devices;
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
  return device == 0 ? recipe_.section("device").plugin() : program_->requests().more_devices[device - 1];
}

std::string Assembly::key_by_trait(std::size_t device, std::string_view trait) const {
  const std::string name = plugin_of(device);
  const std::string_view option = trait_of(plugins_.note("device", name), trait);
  if (option.empty()) return "";
  return detail::concat(name == plugin_of(0) ? "device" : "tier." + name, ".", option);
}

std::string Assembly::key_of_planned_memory(std::size_t device) const { return key_by_trait(device, "plan"); }

std::string Assembly::key_of_planned_units() const { return key_by_trait(0, "plan_units"); }

bool Assembly::is_memory_said(std::size_t device) const {
  const std::string key = key_of_planned_memory(device);
  return !key.empty() && recipe_.find(key) && recipe_.number(key) > 0;
}

std::string Assembly::who_has_more(std::size_t device) const {
  if (is_memory_said(device)) return "; " + key_of_planned_memory(device) + " says so";
  const std::string key = key_by_trait(device, "memory");
  return key.empty() ? "" : "; where the machine has more than the system shows, " + key + " says so";
}

// Stages differ, so each rank makes the plans of all of them: what they send must be what they expect.
// Returns the bytes of the largest.
std::int64_t Assembly::make_plans(const PlannedChoice& choice) {
  WrittenProgram written = writer_->write(choice);
  unlowered_ = std::move(written.program);
  pipeline_ = std::move(written.pipeline);
  make_devices();
  program_ = lowered(*unlowered_);
  plans_ = plans_of(*program_, purpose_, {});
  if (purpose_ == Purpose::training && recipe_.integer("eval.every") > 0) plan_evaluation(choice.way_to_fit);
  std::int64_t largest = 0;
  for (const Plan& plan : plans_) largest = std::max(largest, bytes_in_memory_of(0, plan));
  return largest;
}

// Where drives are used, with memory for all that keeps them busy, if there is that much.
std::int64_t Assembly::make_plans_with_room(const PlannedChoice& choice) {
  far_ahead_ = true;
  const std::int64_t bytes = make_plans(choice);
  if (process_needs_.empty()) state_process_needs();
  const bool uses_drives = std::any_of(plans_.begin(), plans_.end(), [](const Plan& plan) {
    return std::any_of(plan.layout.ranges.begin(), plan.layout.ranges.end(),
                       [](const Layout::Range& range) { return range.place.space == Space::disk; });
  });
  if (!uses_drives || there_is_room(bytes)) return bytes;
  far_ahead_ = false;
  return make_plans(choice);
}

bool Assembly::there_is_room(std::int64_t bytes) const {
  return bytes <= memory_limit() && missing_further_memory().empty() && hosts_have_room(*this);
}

// `beneath`: plans of program() that these are over, or none.
std::vector<Plan> Assembly::plans_of(const Program& program, Purpose purpose,
                                     const std::vector<Plan>& beneath) const {
  const std::vector<int> ranks =
      pipeline_ ? mesh().group(rank_, pipeline_->axis) : std::vector<int>{static_cast<int>(rank_)};
  const bool vertical = batch_.vertical && purpose == Purpose::training;
  std::vector<Plan> plans;
  check_launches(program, batch_.accumulate);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Work work = pipeline_  ? work_of(program, *pipeline_, static_cast<std::int64_t>(i))
                : vertical ? vertical_work(program, batch_.accumulate)
                           : whole_work(program, batch_.accumulate);
    if (purpose != Purpose::training) work = forward_work(std::move(work));
    std::optional<Beneath> under;
    if (!beneath.empty()) under.emplace(Beneath{*program_, beneath[i]});
    plans.push_back(
        make_plan(program, lowering(), batch_.accumulate, ranks[i], work, under ? &*under : nullptr));
  }
  std::vector<RankPlan> pairs;
  for (std::size_t i = 0; i < ranks.size(); ++i) pairs.push_back({ranks[i], &plans[i]});
  check_ranks(program, pairs);
  return plans;
}

// The same for every choice of what is computed again in backward, of which it has none.
void Assembly::plan_evaluation(std::size_t way) {
  if (!evaluation_ || evaluation_way_ != way) {
    evaluation_writer_.emplace(recipe_, plugins_, batch_, ops_.registry, Purpose::evaluation);
    evaluation_ = lowered(*evaluation_writer_->write({{}, way}).program);
    evaluation_way_ = way;
  }
  evaluation_plans_ = plans_of(*evaluation_, Purpose::evaluation, plans_);
  for (std::size_t i = 0; i < plans_.size(); ++i) make_room(plans_[i], evaluation_plans_[i]);
}

std::string Assembly::fingerprint() const {
  std::string all;
  for (const Plan& plan : plans_) all += prun::fingerprint(*program_, plan);
  for (const Plan& plan : evaluation_plans_) all += prun::fingerprint(*evaluation_, plan);
  return all;
}

// The plan is exact, so what does not fit is known now. What strategies leave to the planner is tried in
// their order; what cannot be combined with the rest of the recipe is passed over. Where no way leaves hosts
// with room for all their ranks, the first that fits each rank: who starts them knows how many a host has.
void Assembly::make_fitting_plan() {
  NotFitting tried;
  std::optional<std::size_t> crowded;
  const auto fits = [&](std::size_t way) {
    if (!make_plans_that_fit(way, tried)) return false;
    if (unlowered_->requests().ways_to_fit <= 1 || hosts_have_room(*this)) return true;
    if (!crowded) crowded = way;
    return false;
  };
  if (fits(0)) return;
  for (std::size_t way = 1; way < unlowered_->requests().ways_to_fit; ++way) {
    try {
      if (fits(way)) return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
      if (tried.refused.empty()) tried.refused = error.what();
    }
  }
  if (!crowded || !make_plans_that_fit(*crowded, tried)) refuse_memory(tried);
}

// Where the program leaves it to the planner what is computed again in backward, as little as will do; each
// try starts from a fresh program: strategies after that see the choice.
bool Assembly::make_plans_that_fit(std::size_t way, NotFitting& tried) {
  const auto fits = [&](const RecomputeChoice& recompute) {
    const std::int64_t bytes = make_plans_with_room({recompute, way});
    if (tried.needed == 0) tried.needed = tried.least = bytes;
    tried.least = std::min(tried.least, bytes);
    if (bytes > memory_limit()) return false;
    const std::string further = missing_further_memory();
    if (tried.further.empty()) tried.further = further;
    return further.empty();
  };
  if (fits({})) return true;
  if (!chooses_recompute(*unlowered_)) return false;
  const std::vector<RecomputeChoice> choices = recompute_choices(*unlowered_);
  if (!fits(choices.back())) return false;
  return std::any_of(choices.begin() + 1, choices.end(), fits);
}

// Each device what it runs.
std::unique_ptr<Program> Assembly::lowered(const Program& program) {
  auto lowered = std::make_unique<Program>(program);
  for (std::size_t number = 0; number < devices_.size(); ++number) {
    lowered->show_functions_of(static_cast<std::int32_t>(number));
    raise(devices_[number]->lower(&program_api(), lowered.get()));
  }
  lowered->show_functions_of({});
  derive_saved_moves(*lowered);
  verify(*lowered);
  return lowered;
}

// Of each stage, and everywhere the same: ranks must agree on what fits.
void Assembly::state_process_needs() {
  const std::vector<int> ranks = pipeline_ ? mesh().group(0, pipeline_->axis) : std::vector<int>{0};
  const bool trains = purpose_ == Purpose::training,
             evaluates = evaluation_ != nullptr || purpose_ == Purpose::evaluation;
  const std::int64_t data = data_bytes(recipe_, plugins_, batch_.seq, trains, evaluates);
  for (const int rank : ranks) {
    ProcessNeed need = process_need({recipe_, device_info(), plugins_, mesh(), plan_of(rank), rank},
                                    std::span(device_infos_).subspan(1));
    // The copy that is written beside training; ranks of a stage share out what it is made of. It comes to be
    // when all is read.
    const std::int64_t copied = saves(recipe_) ? lasting_bytes(*program_, plan_of(rank).instances) *
                                                     static_cast<std::int64_t>(ranks.size()) / mesh().world()
                                               : 0;
    need.bytes += data;
    if (purpose_ == Purpose::training)
      need.bytes += std::max(copied, reading_bytes(recipe_, device_info(), mesh().world()));
    process_needs_.push_back(need);
  }
}

// What the recipe says is the plan's alone. Where it says nothing, the plan shares with the process.
std::int64_t Assembly::memory_limit() const {
  const std::int64_t all = device_info().memory_bytes - most_needed(&ProcessNeed::device_bytes);
  const std::int64_t process = device_info().host_memory ? most_needed(&ProcessNeed::bytes) : 0;
  const std::optional<std::int64_t> said = recipe_.section("device").bytes("memory");
  return said ? std::min(*said, all) : all - process;
}

std::int64_t Assembly::most_needed(std::int64_t ProcessNeed::*need) const {
  std::int64_t most = 0;
  for (const ProcessNeed& stage : process_needs_) most = std::max(most, stage.*need);
  return most;
}

// What lies on them was placed there by a strategy: computing more again moves little of it.
std::string Assembly::missing_further_memory() const {
  for (std::size_t number = 1; number < devices_.size(); ++number) {
    if (!knows_memory_of(number)) continue;
    const DeviceInfo& info = device_infos_[number];
    std::int64_t needed = 0;
    for (const Plan& plan : plans_) needed = std::max(needed, bytes_in_memory_of(number, plan));
    const std::int64_t process =
        info.host_memory ? most_needed(&ProcessNeed::bytes) : info.process_device_bytes;
    if (needed <= info.memory_bytes - process) continue;
    const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
    return detail::concat(
        "device ", number, " ('", info.name.view(), "'): the plan needs ", size(needed), " of its memory",
        process == 0 ? "" : " and a rank's process " + size(process) + " beside it", ", ",
        size(info.memory_bytes),
        " may be used in all; let the strategy that uses it place less there, or take a smaller model",
        who_has_more(number));
  }
  return "";
}

// An op has its parameter whole, wherever that lies in between: the largest that is too large, in words.
std::string Assembly::too_large_alone(std::int64_t limit) const {
  Id largest = none;
  for (const Id id : program_->parameters())
    if (program_->local_bytes(id) > (largest == none ? limit : program_->local_bytes(largest))) largest = id;
  if (largest == none) return "";
  const Value& value = program_->value(largest);
  return detail::concat(
      "; '", program_->segment(value.segment).name, ".", value.name, "' alone has ",
      size_text(static_cast<double>(program_->local_bytes(largest))),
      ", and whoever computes with it needs it whole: split it over ranks (strategy tensor)");
}

void Assembly::refuse_memory(const NotFitting& tried) const {
  if (!tried.further.empty()) throw DoesNotFit(ErrorCode::bad_input, tried.further);
  const std::int64_t limit = memory_limit();
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const std::int64_t own = most_needed(&ProcessNeed::device_bytes);
  const char* const with = unlowered_->requests().ways_to_fit > 1 ? " with all that strategies may change"
                                                                  : " with full recompute";
  const std::string least = tried.least == tried.needed ? "" : detail::concat(", ", size(tried.least), with);
  const std::string beside = own == 0 ? "" : detail::concat(" beside ", size(own), " of the process");
  const std::string rest =
      limit > 0 ? detail::concat(", ", size(limit),
                                 " may be used; a smaller batch.micro, model.seq or model needs less")
                : detail::concat(" and a rank's process ", size(device_info().memory_bytes - limit),
                                 " beside it, ", size(device_info().memory_bytes),
                                 " may be used in all; raise this machine's or container's limit on memory");
  const std::string refused =
      tried.refused.empty() ? "" : "; what strategies might change besides is refused: " + tried.refused;
  const std::string more = recipe_.section("device").bytes("memory") ? "" : who_has_more(0);
  Diagnostics problems;
  problems.add(recipe_.problem("device.memory", "the plan needs " + size(tried.needed) + least + beside +
                                                    rest + more + too_large_alone(limit) + refused));
  throw DoesNotFit(ErrorCode::bad_input, problems.text());
}

// One rank alone waits for nobody: its own queues have been checked with the plan.
void Assembly::check_steps_end(bool stamps) const {
  if (mesh().world() == 1) return;
  check_steps_end(*program_, plans_, stamps);
  if (evaluation()) check_steps_end(*evaluation(), evaluation_plans_, false);
}

void Assembly::check_steps_end(const Program& program, const std::vector<Plan>& plans, bool stamps) const {
  std::map<std::pair<AxisId, std::int32_t>, QueueLimits> known;
  const auto limits_of = [&](AxisId axis, std::int32_t number) {
    const DeviceInfo& device = device_infos_[static_cast<std::size_t>(number)];
    QueueLimits limits;
    limits.asynchronous = device.asynchronous;
    limits.depth = device.queue_depth;
    if (axis == no_axis) return limits;
    limits.pool = comm_of_axis(recipe_, plugins_, mesh().name(axis));
    CommInfo info;
    raise(make_comm(recipe_, device_info(), plugins_, limits.pool)->info(&info));
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

Lowering Assembly::lowering() const {
  Lowering lowering;
  for (std::size_t number = 0; number < devices_.size(); ++number)
    lowering.devices.push_back(plan_device(number));
  lowering.bundle = recipe_.section("run").bytes("bundle");
  lowering.far_ahead = far_ahead_;
  if (recipe_.flag("run.poison")) lowering.fence = fence_bytes;
  return lowering;
}

PlanDevice Assembly::plan_device(std::size_t number) const {
  const DeviceInfo& info = device_infos_[number];
  const std::string plugin = plugin_of(number);
  const auto offer = [this, number, plugin](std::string_view op) -> OfferedKernel {
    if (const KernelDef* own = devices_[number]->kernel(op))
      return {own, detail::concat("device plugin '", plugin, "'")};
    for (std::size_t i = 0; i < ops_.plugins.size(); ++i) {
      Array<DeviceKernel> kernels;
      raise(ops_.plugins[i]->kernels(&kernels));
      for (const DeviceKernel& kernel : kernels)
        if (kernel.device == device_infos_[number].kind.view() && kernel.kernel.op == op)
          return {&kernel.kernel, detail::concat("op plugin '", recipe_.texts("plugins.ops")[i], "'")};
    }
    return {};
  };
  return {offer,
          info.threads,
          std::string(info.name.view()),
          std::string(info.kind.view()),
          info.host_memory,
          info.asynchronous,
          info.tier};
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
  return prun::full_name(*program_, id, plan().instances[static_cast<std::size_t>(instance)].layer);
}

}  // namespace prun
