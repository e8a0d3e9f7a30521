#include "train/assemble/plan_maker.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/text.hpp"
#include "base/thread.hpp"
#include "placement/check_edits.hpp"
#include "placement/moves.hpp"
#include "plan/bound_calls.hpp"
#include "plan/launch_limit.hpp"
#include "plan/make/make_plan.hpp"
#include "plan/offsets.hpp"
#include "plan/persistent.hpp"
#include "plan/proof/check_plan.hpp"
#include "plan/proof/check_ranks.hpp"
#include "plan/work.hpp"
#include "plugin/guarded_plugin.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "prun/data.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- memory fit

// ------------------------------------------------------------ data memory

// Counts what data plugins hold in memory, beside what a rank's process has in any case.

std::int64_t held_by(const RecipeSection& section, PluginHost& plugins, std::int64_t seq) {
  const std::string_view each = trait_of(plugins.note("data", section.plugin()), "token_bytes");
  if (each.empty()) return 0;
  DataInfo info;
  const OpenedUnsaid to_measure;
  try {
    raise(plugins.create<DataInterface>("data", section)->open(seq, &info));
  } catch (const Error&) {
    return 0;
  }
  return info.tokens * std::stoll(std::string(each));
}

// Counts the bytes of what a rank of this recipe opens. Plugins that hold something for each token (trait
// token_bytes) are opened to find how many tokens they have; data that cannot be opened count as nothing
// here, and are refused when they are opened to be read.
std::int64_t data_bytes(const Recipe& recipe, PluginHost& plugins, std::int64_t seq, bool trains,
                        bool evaluates) {
  std::int64_t own = held_by(recipe.section("data"), plugins, seq), apart = 0;
  for (const RecipeSection& section : recipe.sections("data.blend")) own += held_by(section, plugins, seq);
  for (const RecipeSection& section : recipe.sections("validation"))
    if (evaluates) apart += held_by(section, plugins, seq);
  const bool keeps_a_part = recipe.sections("validation").empty();
  return (trains ? own : 0) + (evaluates ? keeps_a_part ? own : apart : 0);
}

std::int64_t most_needed(const Assembly& assembly, std::int64_t ProcessNeed::*need) {
  std::int64_t most = 0;
  for (const ProcessNeed& stage : assembly.process_needs()) most = std::max(most, stage.*need);
  return most;
}

// Names the largest parameter that is too large alone, since an op has its parameter whole, wherever that
// lies in between.
std::string too_large_alone(const Program& program, std::int64_t limit) {
  Id largest = none;
  for (const Id id : program.parameters())
    if (program.local_bytes(id) > (largest == none ? limit : program.local_bytes(largest))) largest = id;
  if (largest == none) return "";
  const Value& value = program.value(largest);
  return detail::concat(
      "; '", program.segment(value.segment).name, ".", value.name, "' alone has ",
      size_text(program.local_bytes(largest)),
      ", and whoever computes with it needs it whole: split it over ranks (strategy tensor)");
}

// Adds the memory that a save passes through; ranks of a stage share out what is saved. It is allocated when
// all that the run starts from has been read.
void add_saves(const Assembly& assembly, int rank, std::int64_t stages, ProcessNeed& need) {
  const Recipe& recipe = assembly.recipe();
  const std::int64_t world = assembly.mesh().world();
  const SaveMemory said = save_memory(recipe);
  need.saved_bytes = persistent_bytes(assembly.program(), assembly.plan_of(rank).instances) * stages / world;
  need.save_bytes =
      said.all ? need.saved_bytes : std::min(need.saved_bytes, said.bytes.value_or(least_save_bytes));
  need.tensor_bytes =
      bytes_of_tensor * static_cast<std::int64_t>(
                            persistent_tensors(assembly.program(), assembly.plan_of(rank).instances).size());
  need.bytes += need.tensor_bytes;
  // Floats of two halves are joined a piece at a time.
  if (recipe.text("precision.master") == "split")
    need.bytes += std::min(need.saved_bytes, checksum_chunk_bytes);
  // Bytes that threads read from drives pass through memory of the tier.
  if (has_drives(assembly.plan_of(rank)))
    need.bytes += std::min(need.saved_bytes, drive_readers * checksum_chunk_bytes);
  need.bytes += std::max(need.save_bytes, reading_bytes(recipe, assembly.device_info(), world));
}

// ------------------------------------------------------------ saves and speculative updates

bool saves_take_the_rest(const Recipe& recipe) {
  const SaveMemory said = save_memory(recipe);
  return saves_between_steps(recipe) && !said.all && !said.bytes;
}

// Returns how much more than the least saves use of what is left. Files are written through the system's
// cache, which other programs use too.
std::int64_t more_for_saves(const ProcessNeed& need, const std::optional<std::int64_t>& left) {
  const std::int64_t more = left ? std::max<std::int64_t>(*left, 0) / 4 * 3 : need.saved_bytes;
  return std::min(need.saved_bytes - need.save_bytes, more);
}

// Returns, by n, what the first n speculative updates of a plan hold at most.
std::vector<std::int64_t> held_by_first(const Assembly& assembly) {
  std::vector<std::int64_t> most = {0};
  for (const Plan& plan : assembly.plans()) {
    std::map<Id, std::int64_t> of_segment;
    for (const auto& [id, allocation] : plan.allocations)
      if (allocation.region == Region::arrived)
        of_segment[assembly.program().value(id).segment] += align(allocation.bytes);
    std::size_t count = 0;
    std::int64_t held = 0;
    for (const Call& call : plan.calls)
      if (const PlannedFunction& function = plan.functions[call.function];
          function.kind == FunctionKind::speculate && call.instance > 0 && call.piece == 0) {
        held += of_segment[function.segment];
        if (++count == most.size()) most.push_back(most.back());
        most[count] = std::max(most[count], held);
      }
  }
  // A stage with fewer layers than another may hold more.
  std::partial_sum(most.begin(), most.end(), most.begin(),
                   [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  return most;
}

// Returns what hosts have left of their memory for a rank if nothing is speculative.
std::optional<std::int64_t> left_without_speculation(const Assembly& assembly) {
  const std::optional<std::int64_t> left = left_on_hosts(assembly);
  return left ? *left + held_by_first(assembly).back() : left;
}

}  // namespace

std::int32_t speculated_that_fit(const Assembly& assembly) {
  const std::vector<std::int64_t> held = held_by_first(assembly);
  const std::optional<std::int64_t> left = left_without_speculation(assembly);
  // An eighth of what is left stays free for the system and other programs.
  const std::int64_t spare = left ? *left - std::max<std::int64_t>(*left, 0) / 8 : held.back();
  std::int64_t room = spare;
  if (left && saves_take_the_rest(assembly.recipe()))
    for (const ProcessNeed& need : assembly.process_needs())
      room = std::min(room, spare - more_for_saves(need, left));
  if (assembly.device_info().host_memory)
    room = std::min(room, memory_limit(assembly) - bytes_needed(assembly) + held.back());
  const auto beyond = std::upper_bound(held.begin() + 1, held.end(), room);
  return static_cast<std::int32_t>(beyond - held.begin()) - 1;
}

void leave_rest_to_saves(const Assembly& assembly, std::vector<ProcessNeed>& needs) {
  if (!saves_take_the_rest(assembly.recipe())) return;
  const std::optional<std::int64_t> left = left_without_speculation(assembly), now = left_on_hosts(assembly);
  for (ProcessNeed& need : needs) {
    const std::int64_t more = more_for_saves(need, left),
                       there = now ? std::max<std::int64_t>(*now, 0) : more;
    const std::int64_t grown = need.save_bytes + std::min(more, there);
    const std::int64_t reading =
        reading_bytes(assembly.recipe(), assembly.device_info(), assembly.mesh().world());
    need.bytes += std::max(grown, reading) - std::max(need.save_bytes, reading);
    need.save_bytes = grown;
  }
}

std::int64_t data_bytes_of(const Assembly& assembly, PluginHost& plugins) {
  const bool trains = assembly.purpose() == Purpose::training,
             evaluates = assembly.evaluation() != nullptr || assembly.purpose() == Purpose::evaluation;
  return data_bytes(assembly.recipe(), plugins, assembly.batch().seq, trains, evaluates);
}

std::vector<ProcessNeed> process_needs_of(const Assembly& assembly, PluginHost& plugins,
                                          std::int64_t data_bytes) {
  const Recipe& recipe = assembly.recipe();
  const DeviceInfo& device = assembly.device_info();
  std::vector<ProcessNeed> needs;
  const std::vector<int> ranks =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : ranks) {
    ProcessNeed need = process_need({recipe, device, plugins, assembly.mesh(), assembly.plan_of(rank), rank},
                                    std::span(assembly.device_infos()).subspan(1));
    need.call_bytes = bound_bytes(assembly.plan_of(rank));
    if (assembly.evaluation()) need.call_bytes += bound_bytes(assembly.evaluation_plan_of(rank));
    for (const StepPlans& step : assembly.other_steps())
      need.call_bytes += bound_bytes(assembly.plan_of(step, rank));
    need.bytes += data_bytes + need.call_bytes;
    if (assembly.purpose() == Purpose::training)
      add_saves(assembly, rank, static_cast<std::int64_t>(ranks.size()), need);
    needs.push_back(need);
  }
  return needs;
}

std::int64_t memory_limit(const Assembly& assembly) {
  const std::int64_t all =
      assembly.device_info().memory_bytes - most_needed(assembly, &ProcessNeed::device_bytes);
  const std::int64_t process =
      assembly.device_info().host_memory ? most_needed(assembly, &ProcessNeed::bytes) : 0;
  const std::optional<std::int64_t> said = assembly.recipe().section("device").bytes("memory");
  return said ? std::min(*said, all) : all - process;
}

std::int64_t bytes_needed(const Assembly& assembly) {
  std::int64_t largest = 0;
  for (const Plan& plan : assembly.plans()) largest = std::max(largest, assembly.bytes_in_memory_of(0, plan));
  return largest;
}

// Strategies placed what lies on these devices: computing more again moves little of it.
std::string missing_further_memory(const Assembly& assembly) {
  for (std::size_t number = 1; number < assembly.device_infos().size(); ++number) {
    if (!assembly.knows_memory_of(number)) continue;
    const DeviceInfo& info = assembly.device_infos()[number];
    std::int64_t needed = 0;
    for (const Plan& plan : assembly.plans())
      needed = std::max(needed, assembly.bytes_in_memory_of(number, plan));
    const std::int64_t process =
        info.host_memory ? most_needed(assembly, &ProcessNeed::bytes) : info.process_device_bytes;
    if (needed <= info.memory_bytes - process) continue;
    const auto size = [](std::int64_t bytes) { return size_text(bytes); };
    return detail::concat(
        "device ", number, " ('", info.name.view(), "'): the plan needs ", size(needed), " of its memory",
        process == 0 ? "" : " and a rank's process " + size(process) + " beside it", ", ",
        size(info.memory_bytes),
        " may be used in all; let the strategy that uses it place less there, or take a smaller model",
        assembly.hint_of_more_memory(number));
  }
  return "";
}

void refuse_memory(const Assembly& last, const NotFitting& tried) {
  if (!tried.further.empty()) throw DoesNotFit(ErrorCode::bad_input, tried.further);
  const std::int64_t limit = memory_limit(last);
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  const std::int64_t own = most_needed(last, &ProcessNeed::device_bytes);
  const WayToFit ways = last.unlowered().requests().ways_to_fit;
  const char* const with =
      ways.strategies > 1 || ways.sums > 1 ? " with all that strategies may change" : " with full recompute";
  const std::string least = tried.least == tried.needed ? "" : detail::concat(", ", size(tried.least), with);
  const std::string beside = own == 0 ? "" : detail::concat(" beside ", size(own), " of the process");
  const std::string rest =
      limit > 0 ? detail::concat(", ", size(limit),
                                 " may be used; a smaller batch.micro, model.seq or model needs less")
                : detail::concat(" and a rank's process ", size(last.device_info().memory_bytes - limit),
                                 " beside it, ", size(last.device_info().memory_bytes),
                                 " may be used in all; raise this machine's or container's limit on memory");
  const std::string refused =
      tried.refused.empty() ? "" : "; what strategies might change besides is refused: " + tried.refused;
  const std::string more = last.recipe().section("device").bytes("memory") ? "" : last.hint_of_more_memory(0);
  Diagnostics problems;
  problems.add(last.recipe().problem("device.memory", "the plan needs " + size(tried.needed) + least +
                                                          beside + rest + more +
                                                          too_large_alone(last.program(), limit) + refused));
  throw DoesNotFit(ErrorCode::bad_input, problems.text());
}

// ------------------------------------------------------------------- plan maker

Lowering KernelOffers::lowering(const Assembly& next, const SpareMemory& spare) const {
  Lowering lowering;
  for (std::size_t number = 0; number < next.device_infos().size(); ++number)
    lowering.devices.push_back(plan_device(next, number));
  lowering.bundle = of_.recipe.section("run").bytes("bucket_bytes");
  lowering.spare = spare;
  lowering.saves_beside =
      of_.purpose == Purpose::training && saves_between_steps(of_.recipe) && !save_memory(of_.recipe).all;
  if (of_.recipe.flag("run.poison")) lowering.fence = fence_bytes;
  return lowering;
}

PlanDevice KernelOffers::plan_device(const Assembly& next, std::size_t number) const {
  const DeviceInfo& info = next.device_infos()[number];
  std::string kind(info.kind.view());
  const std::string plugin = number == 0 ? of_.recipe.section("device").plugin()
                                         : next.program().requests().more_devices[number - 1];
  const auto offer = [this, device = next.devices()[number], kind, plugin](std::string_view op) {
    return offered(*device, kind, plugin, op);
  };
  return {offer,           info.threads,     std::string(info.name.view()),
          std::move(kind), info.host_memory, info.asynchronous,
          info.tier};
}

// Returns the device's own kernel, or else an op plugin's for its kind.
OfferedKernel KernelOffers::offered(DeviceInterface& device, std::string_view kind, const std::string& plugin,
                                    std::string_view op) const {
  const std::scoped_lock one_asks(asking_);
  if (const KernelDef* own = device.kernel(op)) return {own, detail::concat("device plugin '", plugin, "'")};
  for (std::size_t i = 0; i < of_.ops.plugins.size(); ++i) {
    Array<DeviceKernel> kernels;
    raise(of_.ops.plugins[i]->kernels(&kernels));
    for (const DeviceKernel& kernel : kernels)
      if (kernel.device == kind && kernel.kernel.op == op)
        return {&kernel.kernel, detail::concat("op plugin '", of_.recipe.texts("plugins.ops")[i], "'")};
  }
  return {};
}

namespace {

constexpr std::int64_t launches_of_a_short_step = 200'000;

void refuse_tier(const DeviceInfo& device, const Recipe& recipe) {
  if (!device.tier) return;
  Diagnostics problems;
  problems.add(recipe.problem("device.plugin", "'" + recipe.section("device").plugin() +
                                                   "' keeps bytes and computes nothing; name a device that "
                                                   "computes, and this one where a strategy asks for it"));
  problems.throw_if_any();
}

// Returns the ranks of the stages that the assembly's rank is one of.
std::vector<int> ranks_of_stages(const Assembly& made) {
  return made.pipeline() ? made.mesh().group(made.rank(), made.pipeline()->axis)
                         : std::vector<int>{static_cast<int>(made.rank())};
}

// Shares out stages: several threads take those of a long step; a short one is planned sooner than they
// start, and each keeps memory of the process.
void share_out_stages(const Program& program, std::int64_t microbatches, std::size_t stages,
                      const std::function<void(std::size_t)>& body) {
  const bool is_long = launches_of(program, microbatches) > launches_of_a_short_step;
  share_out(is_long ? std::thread::hardware_concurrency() : 1, stages,
            [&](std::size_t, std::size_t stage) { body(stage); });
}

}  // namespace

PlanMaker::PlanMaker(std::shared_ptr<PlannedRecipe> of)
    : of_(std::move(of)),
      offers_(*of_),
      device_(of_->plugins.create<DeviceInterface>("device", of_->recipe.section("device"))) {
  raise(device_->info(&device_info_));
  refuse_tier(device_info_, of_->recipe);
}

Assembly PlanMaker::write(const PlannedChoice& choice) const {
  return with_devices(of_->writer.write(choice));
}

Assembly PlanMaker::with_devices(WrittenProgram written) const {
  Assembly next;
  next.of_ = of_;
  next.unlowered_ = std::move(written.program);
  next.pipeline_ = std::move(written.pipeline);
  make_devices(next);
  next.program_ = lowered(next, *next.unlowered_);
  return next;
}

void PlanMaker::make(const PlannedChoice& choice, const SpareMemory& spare, std::optional<Assembly>& made) {
  WrittenProgram written = of_->writer.write(choice);
  if (made) {
    made->devices_.resize(1);
    made->device_infos_.resize(1);
    made->plans_.clear();
    made->evaluation_plans_.clear();
  }
  Assembly next = with_devices(std::move(written));
  next.plans_ = plans_of(next, *next.program_, of_->purpose, full_step(next), spare);
  if (of_->purpose == Purpose::training && of_->recipe.integer("eval.every") > 0)
    plan_evaluation(next, choice.way_to_fit.strategies, spare);
  if (!data_bytes_) data_bytes_ = data_bytes_of(next, of_->plugins);
  next.process_needs_ = process_needs_of(next, of_->plugins, *data_bytes_);
  made.reset();
  made.emplace(std::move(next));
}

void PlanMaker::leave_rest_to_saves(Assembly& taken) const {
  if (of_->purpose == Purpose::training) prun::leave_rest_to_saves(taken, taken.process_needs_);
}

// ------------------------------------------------------------------- devices

// Makes the recipe's device, and those that the program requests beside it.
void PlanMaker::make_devices(Assembly& next) const {
  next.devices_ = {device_};
  next.device_infos_ = {device_info_};
  for (const std::string& plugin : next.unlowered_->requests().more_devices) {
    next.devices_.push_back(make_device_beside(plugin));
    raise(next.devices_.back()->info(&next.device_infos_.emplace_back()));
  }
}

// Gives it the options of the recipe's device if it is of the same plugin. Where the plan is for another
// machine, this one's folders say nothing of a tier: one whose size the recipe does not state has room for
// anything (Assembly::knows_memory_of()).
std::shared_ptr<DeviceInterface> PlanMaker::make_device_beside(const std::string& plugin) const {
  constexpr const char* room_for_anything = "1048576";  // GiB
  const Recipe& recipe = of_->recipe;
  const RecipeSection section = recipe.section("device");
  if (plugin == section.plugin()) return of_->plugins.create<DeviceInterface>("device", section);
  const PluginNote& note = of_->plugins.note("device", plugin);
  const std::string key = detail::concat("tier.", plugin, ".", trait_of(note, "plan"));
  const bool unknown = device_info_.absent && !trait_of(note, "tier").empty() &&
                       !trait_of(note, "plan").empty() && !(recipe.find(key) && recipe.number(key) > 0);
  return of_->plugins.create<DeviceInterface>("device", plugin,
                                              unknown ? recipe.with(key, room_for_anything) : recipe);
}

// Lets each device lower what it runs.
std::unique_ptr<Program> PlanMaker::lowered(const Assembly& next, const Program& program) const {
  auto lowered = std::make_unique<Program>(program);
  for (std::size_t number = 0; number < next.devices_.size(); ++number) {
    lowered->show_functions_of(static_cast<std::int32_t>(number));
    const EditCheck edits(*lowered);
    raise(next.devices_[number]->lower(&program_api(), lowered.get()));
    edits.run();
  }
  lowered->show_functions_of({});
  derive_saved_moves(*lowered);
  verify(*lowered);
  return lowered;
}

// ------------------------------------------------------------------- plans

Work PlanMaker::work_of_stage(const Program& program, Purpose purpose, const Microbatches& microbatches,
                              std::size_t stage) const {
  const BatchArithmetic& batch = of_->batch;
  const std::int64_t count = microbatches.count;
  const bool trains = purpose == Purpose::training;
  Work work = microbatches.pipeline
                  ? work_of(program, *microbatches.pipeline, static_cast<std::int64_t>(stage))
              : trains && batch.vertical       ? vertical_work(program, count)
              : trains && batch.interleave > 1 ? interleaved_work(program, count, batch.interleave)
                                               : whole_work(program, count);
  work.periodic = microbatches.periodic;
  return trains ? work : forward_work(std::move(work));
}

std::vector<PlanOutline> PlanMaker::outlines(const Assembly& written) const {
  const std::vector<int> ranks = ranks_of_stages(written);
  std::vector<PlanOutline> outlines;
  for (const std::size_t stage : std::set<std::size_t>{0, ranks.size() / 2, ranks.size() - 1})
    outlines.push_back(
        outline_plan(written.program(), offers_.lowering(written, {}), of_->batch.accumulate, ranks[stage],
                     work_of_stage(written.program(), of_->purpose, full_step(written), stage)));
  return outlines;
}

// Returns the plans; all are over those of the full step of training, once these are made.
std::vector<Plan> PlanMaker::plans_of(const Assembly& next, const Program& program, Purpose purpose,
                                      const Microbatches& microbatches, const SpareMemory& spare) const {
  const std::vector<int> ranks = ranks_of_stages(next);
  std::vector<Plan> plans(ranks.size());
  check_launches(program, microbatches.count);
  share_out_stages(program, of_->batch.accumulate, ranks.size(), [&](std::size_t i) {
    const Work work = work_of_stage(program, purpose, microbatches, i);
    std::optional<BaseProgram> under;
    if (!next.plans_.empty()) under.emplace(BaseProgram{*next.program_, next.plans_[i]});
    plans[i] = make_plan(program, offers_.lowering(next, spare), microbatches.count, ranks[i], work,
                         under ? &*under : nullptr, Proof::left_out);
  });
  return plans;
}

// Makes the plans for each number of microbatches, with and without ops of `periodic`. While steps overlap,
// all have one plan.
void PlanMaker::plan_other_steps(Assembly& taken, const SpareMemory& spare) const {
  if (of_->purpose != Purpose::training) return;
  const bool periodic = taken.period() > 0;
  if (periodic) check_steps_may_differ(taken);
  const BatchRamp sizes = BatchRamp::of(of_->recipe);
  std::vector<std::int64_t> globals = {of_->batch.global};
  for (const BatchRamp::Rung& rung : sizes.rungs()) globals.push_back(rung.global);
  std::set<StepKind> known = {taken.full_step()};
  for (const std::int64_t global : globals)
    for (const bool runs_periodic : {periodic, false}) {
      const StepKind kind{of_->batch.with_global(global).accumulate, runs_periodic};
      if ((taken.period() == 1 && !runs_periodic) || !known.insert(kind).second) continue;
      check_steps_may_differ(taken);
      try {
        taken.other_steps_.push_back({kind, plans_of_kind(taken, kind, spare)});
      } catch (const Error& error) {  // a schedule may not work with so few microbatches
        if (global == of_->batch.global) throw;
        throw_error(error.code(), "batch.ramp comes to steps of ", global, " sequences: ", error.what());
      }
    }
  for (const StepPlans& step : taken.other_steps_)
    for (std::size_t i = 0; i < step.plans.size(); ++i) make_room(taken.plans_[i], step.plans[i]);
  if (!taken.other_steps_.empty()) taken.process_needs_ = process_needs_of(taken, of_->plugins, *data_bytes_);
}

void PlanMaker::check_steps_may_differ(const Assembly& taken) const {
  if (!taken.pipeline_ || !taken.pipeline_->order.overlap) return;
  const std::optional<PeriodicRequest>& periodic = taken.program_->requests().periodic;
  throw_error(ErrorCode::unsupported,
              taken.period() > 0 ? detail::concat("cannot run ops of [", periodic->asked_by,
                                                  "] in one step of ", periodic->every)
                                 : "cannot take steps of several sizes (batch.ramp)",
              " with schedule '", taken.program_->requests().pipeline->schedule,
              "', whose steps overlap and must be identical; leave ",
              taken.period() > 0 ? "the strategy" : "the ramp", " out, or take another schedule");
}

std::vector<Plan> PlanMaker::plans_of_kind(const Assembly& taken, const StepKind& kind,
                                           const SpareMemory& spare) const {
  std::optional<PipelineLayout> pipeline = taken.pipeline_;
  if (pipeline && kind.accumulate != of_->batch.accumulate)
    pipeline->order = of_->writer.order_of(*taken.program_, kind.accumulate);
  return plans_of(taken, *taken.program_, Purpose::training, {kind.accumulate, pipeline, kind.periodic},
                  spare);
}

void PlanMaker::prove(const Assembly& taken) const {
  const std::vector<int> ranks = ranks_of_stages(taken);
  const auto prove_all = [&](const Program& program, const std::vector<Plan>& plans, bool is_over) {
    share_out_stages(program, of_->batch.accumulate, plans.size(), [&](std::size_t i) {
      check_plan(program, plans[i]);
      if (is_over) check_over(program, plans[i], {taken.program(), taken.plans_[i]});
    });
    std::vector<RankPlan> pairs;
    for (std::size_t i = 0; i < ranks.size(); ++i) pairs.push_back({ranks[i], &plans[i]});
    check_ranks(program, pairs);
  };
  taken.each_planned(prove_all);
}

void PlanMaker::plan_evaluation(Assembly& next, std::size_t way, const SpareMemory& spare) {
  if (!evaluation_ || evaluation_way_ != way) {
    evaluation_ = lowered(next, *of_->evaluation_writer.write({{}, {way, 0}}).program);
    evaluation_way_ = way;
  }
  next.evaluation_ = evaluation_;
  next.evaluation_plans_ = plans_of(next, *evaluation_, Purpose::evaluation, full_step(next), spare);
  for (std::size_t i = 0; i < next.plans_.size(); ++i) make_room(next.plans_[i], next.evaluation_plans_[i]);
}

}  // namespace prun
