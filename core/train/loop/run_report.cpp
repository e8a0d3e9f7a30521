#include "train/loop/run_report.hpp"

#include <algorithm>

#include "plan/plan.hpp"
#include "program/flops.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {
namespace {

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
  info.averaged = evaluation.averaged.has_value();
  info.averaged_loss = evaluation.averaged.value_or(0);
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

}  // namespace prun
