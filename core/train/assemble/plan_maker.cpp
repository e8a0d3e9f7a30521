#include "train/assemble/plan_maker.hpp"

#include <set>
#include <thread>

#include "base/thread.hpp"
#include "placement/check_edits.hpp"
#include "placement/saved_moves.hpp"
#include "plan/launch_limit.hpp"
#include "plan/make/make_plan.hpp"
#include "plan/proof/check_plan.hpp"
#include "plan/proof/check_ranks.hpp"
#include "plan/work.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "train/assemble/batch_ramp.hpp"
#include "train/assemble/memory_fit.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {

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
              : trains && batch.vertical  ? vertical_work(program, count)
              : trains && batch.lanes > 1 ? side_by_side_work(program, count, batch.lanes)
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
