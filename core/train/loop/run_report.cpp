#include "train/loop/run_report.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/plan.hpp"
#include "plugin/traits.hpp"
#include "program/flops.hpp"
#include "program/step.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {

// ------------------------------------------------------------------- observers

std::string unnamed_log(const Recipe& recipe, PluginHost& plugins) {
  if (!recipe.flag("run.log")) return {};
  const std::vector<PluginNote> loggers = plugins.notes_with("observer", "log", "yes");
  const std::vector<RecipeSection> named = recipe.sections("observer");
  const bool is_named = std::any_of(named.begin(), named.end(), [&](const RecipeSection& section) {
    return std::any_of(loggers.begin(), loggers.end(),
                       [&](const PluginNote& logger) { return logger.name == section.plugin(); });
  });
  return is_named || loggers.empty() ? std::string() : loggers.front().name;
}

namespace {

// ------------------------------------------------------------------- run report

// Reads watts and clock now, and the energy of all ranks.
void read_meter(const Assembly& assembly, StepInfo& info) {
  DeviceMeter meter;
  raise(assembly.devices().front()->meter(&meter));
  info.watts = meter.watts;
  info.clock_mhz = meter.clock_mhz;
  info.joules = meter.watts * info.seconds * static_cast<double>(assembly.mesh().world());
}

}  // namespace

std::string long_warmup_text(const Recipe& recipe) {
  const std::int64_t warmup = recipe.integer("optimizer.schedule.warmup"),
                     steps = recipe.integer("run.steps");
  if (warmup < steps) return {};
  return detail::concat(
      "optimizer.schedule.warmup = ", warmup, " is as long as the run of ", steps,
      steps == 1 ? " step" : " steps",
      ", so the learning rate is below its peak throughout; take a tenth of the steps, say");
}

void report_start(Observers& observers, Trainer& trainer) {
  const Assembly& assembly = trainer.assembly();
  const Recipe& recipe = assembly.recipe();
  const std::string folder = trainer.folder().string();
  const std::string& text = recipe.text("run.name");
  RunInfo info;
  info.name = text;
  info.folder = folder;
  info.recipe = text;
  info.device = assembly.device_info().name;
  info.steps = recipe.integer("run.steps");
  info.first_step = trainer.progress().step + 1;
  info.parameters = assembly.parameters();
  info.tokens_per_step = assembly.batch().tokens();
  info.flops_per_token =
      model_flops(assembly.unlowered()) /
      static_cast<double>(assembly.batch().micro * assembly.batch().ranks * assembly.batch().seq);
  info.peak_flops = assembly.device_info().peak_flops * static_cast<double>(assembly.mesh().world());
  info.plan_bytes = assembly.plan().layout.bytes_in_memory();
  observers.start(info);
  observers.event(EventKind::note, "batch: " + assembly.batch().text());
  if (!trainer.ramp().rungs().empty())
    observers.event(EventKind::note, "batch.ramp: " + trainer.ramp().text());
  if (const std::string said = long_warmup_text(recipe); !said.empty())
    observers.event(EventKind::warning, said);
  if (const Communicators* const all = trainer.communicators())
    for (const AxisLinks& links : all->links())
      observers.event(links.mend.empty() ? EventKind::note : EventKind::warning, to_text(links));
  if (const std::string said = ignored_stop_signals_text(); !said.empty())
    observers.event(EventKind::note, said);
  for (const std::string& said : assembly.program().requests().said_to_fit)
    observers.event(EventKind::note, said);
  for (const std::string& said : trainer.resume_warnings()) observers.event(EventKind::warning, said);
  for (const std::string& said : trainer.resume_notes()) observers.event(EventKind::note, said);
}

void report_failure(Observers& observers, const Error& error) {
  for (const ErrorCode known : {ErrorCode::comm_failed, ErrorCode::hang, ErrorCode::diverged})
    if (error.code() == known) return;
  observers.event(EventKind::failed, error.what());
}

void report_evaluation(Observers& observers, std::int64_t step, const Evaluation& evaluation,
                       double seconds) {
  std::vector<EvaluatedLoss> sets;
  for (const auto& [name, evaluated] : evaluation.sets)
    sets.push_back({name, evaluated.loss, evaluated.targets});
  EvaluationInfo info;
  info.step = step;
  info.loss = evaluation.whole.loss;
  info.targets = evaluation.whole.targets;
  info.seconds = seconds;
  info.sets = {sets.data(), sets.size()};
  observers.evaluation(info);
}

StepReport::StepReport(const Trainer& trainer, const StepResult& result, const LossGroups& groups,
                       const ClippedSteps& clipped, double seconds)
    : parts_(groups.parts(result.losses)), clipped_share_(clipped.share()) {
  if (clipped_share_) tallies_.push_back({"clipped.share", 1, {&*clipped_share_, 1}});
  for (const StepTally& tally : result.tallies)
    tallies_.push_back({tally.name, tally.layers, {tally.numbers.data(), tally.numbers.size()}});
  for (const LossGroups::Part& part : parts_) losses_.push_back({part.name, part.loss, part.targets});
  info.step = trainer.progress().step;
  info.loss = result.loss;
  info.grad_norm = result.grad_norm;
  info.lr = result.lr;
  info.loss_scale = result.loss_scale;
  info.kept = result.kept;
  info.targets = result.targets;
  info.tokens = result.sequences * trainer.assembly().batch().seq;
  info.all_tokens = trainer.progress().samples * trainer.assembly().batch().seq;
  info.seconds = seconds;
  // Steps overlap, so one whose end the host saw late seems shorter than it was on the device.
  info.exposed_seconds = std::min(result.exposed_communication.value_or(-1), seconds);
  info.tallies = {tallies_.data(), tallies_.size()};
  info.losses = {losses_.data(), losses_.size()};
  read_meter(trainer.assembly(), info);
}

std::string other_batch_text(const Trainer& trainer) {
  return detail::concat("batch.ramp: from step ", trainer.progress().step + 1, " on ",
                        trainer.assembly().batch().with_global(trainer.global()).text());
}

std::string stopped_text(const Trainer& trainer, const std::string& resume_command) {
  return detail::concat("stopped at step ", trainer.progress().step, "; go on with: ", resume_command,
                        " --set run.resume=", trainer.folder().string());
}

std::string ended_early_text(const Trainer& trainer, const BestCheckpoint& best) {
  return detail::concat(
      "the run ends at step ", trainer.progress().step, ": the validation loss was lowest at step ",
      best.step, " (", best.loss, "), and eval.patience allows for ",
      trainer.assembly().recipe().integer("eval.patience"), " evaluations without a lower one");
}

namespace {

// ------------------------------------------------------------------- non finite

// Names what a layer needed more of than there was.
struct Beyond {
  std::string layer, option;
  double needed = 0, planned = 0;
};

std::optional<Beyond> most_beyond(const StepResult& result) {
  std::optional<Beyond> most;
  for (const StepTally& tally : result.tallies)
    for (std::int64_t layer = 0; tally.bounds && layer < tally.layers; ++layer) {
      const double* const numbers = tally.numbers.data() + 2 * layer;
      if (numbers[0] <= numbers[1] || (most && most->needed >= numbers[0])) continue;
      const std::size_t dot = tally.name.rfind('.');
      most = {tally.name.substr(0, dot) + "." + std::to_string(layer), tally.name.substr(dot + 1), numbers[0],
              numbers[1]};
    }
  return most;
}

// Rounds up to two digits behind the point, so that what is shown suffices.
double enough(double needed) { return std::ceil(needed * 100 * (1 - 1e-12)) / 100; }

const char* updated_text(const Program& program) {
  return updates_before_norm(program)
             ? "; parameters are partly updated, since updates do not wait for the norm where nothing "
               "is clipped, and are not saved"
             : "; nothing was updated";
}

[[noreturn]] void throw_scale_spent(const std::string& what, double scale) {
  throw_error(ErrorCode::diverged, what, "; nothing was updated, and the loss scale is 2^", std::ilogb(scale),
              " already, the least that loss_scale.least allows. Lower optimizer.lr, look at what the model "
              "computes, or take loss_scale.rule = \"megatron\", which goes on there");
}

[[noreturn]] void throw_diverged(const Program& program, const std::string& what) {
  throw_error(ErrorCode::diverged, what, updated_text(program),
              ". Lower optimizer.lr, set optimizer.clip, or run.on_nonfinite = \"skip\"");
}

[[noreturn]] void throw_beyond(const Program& program, const std::string& what) {
  throw_error(ErrorCode::diverged, what, updated_text(program),
              ". Plan for as much, or set run.on_nonfinite = \"skip\"");
}

}  // namespace

std::string beyond_text(std::int64_t step, const StepResult& result) {
  const std::optional<Beyond> most = result.kept ? std::nullopt : most_beyond(result);
  if (!most) return "";
  return detail::concat("step ", step, ": ", most->layer, " needs ", most->option, " = ",
                        enough(most->needed), ", and ", std::floor(most->planned * 100) / 100,
                        " was planned for");
}

std::string non_finite_text(std::int64_t step, const StepResult& result) {
  if (std::string beyond = beyond_text(step, result); !beyond.empty()) return beyond;
  return detail::concat("step ", step, ": ", std::isfinite(result.loss) ? "" : "the loss is not finite; ",
                        result.non_finite.empty()
                            ? "no gradient is non-finite by itself"
                            : "the gradient of '" + result.non_finite + "' is not finite");
}

std::string scale_text(double before, double next) {
  if (before == 0) return "";
  const auto power = [](double scale) { return detail::concat("2^", std::ilogb(scale)); };
  if (before == next) return "; the loss scale stays at " + power(before);
  return "; the loss scale falls from " + power(before) + " to " + power(next);
}

void throw_non_finite(const Program& program, std::int64_t step, const StepResult& result) {
  const std::string what = non_finite_text(step, result);
  if (result.scale_spent) throw_scale_spent(what, result.loss_scale);
  if (!beyond_text(step, result).empty()) throw_beyond(program, what);
  throw_diverged(program, what);
}

}  // namespace prun
