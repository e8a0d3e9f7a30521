// The constructor starts a run: what it makes and does stands there in order.
#include "train/loop/trainer.hpp"

#include <algorithm>

#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/kernel_choices.hpp"
#include "train/checkpoint/plugin_record.hpp"
#include "train/checkpoint/resume_notes.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/checkpoint/weights.hpp"
#include "train/loop/agreement.hpp"

namespace prun {
namespace {

ExecutorOptions executor_options(const Assembly& assembly, SaveGate& gate) {
  return {assembly.recipe().flag("run.poison"), assembly.rank(),
          assembly.recipe().integer("run.measure_comm"), nullptr, &gate};
}

std::vector<Probe*> probes_of(const Probes& probes, const Assembly& assembly, Communicators* communicators) {
  return probes ? probes(assembly, communicators) : std::vector<Probe*>{};
}

}  // namespace

// ------------------------------------------------------------------- the start

// Starts a run. Kernels are those that the checkpoint was made with; the ranks agree and connect; memory and
// launches are there; data is open. Then what the recipe wants in addition is made, memory is filled, all
// ranks check that they begin from the same, and the first batch is on its way.
Trainer::Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership)
    : assembly_(with_kernel_choices(assembly)),
      membership_(std::move(membership)),
      peers_(assembly, plugins, membership_),
      echo_(assembly.plan(), assembly.mesh(), assembly.rank()),
      gate_(assembly.plan().save_reads.size()),
      ramp_(BatchRamp::of(assembly.recipe())),
      full_(assembly, assembly.plan(), executor_options(assembly, gate_), queues(),
            probes_of(membership_.probes, assembly, peers_.communicators())),
      samples_(open_data(assembly, plugins)),
      reader_(samples_, batch_shape(assembly, assembly.program())),
      scaler_(assembly.recipe()) {
  open_ramp();
  open_evaluation(plugins);
  watch_replicas();
  const std::unique_ptr<StartValues> weights = restore(plugins);
  check_all_start_alike(plugins, weights.get());
  prepare_saves(plugins);
  read_ahead();
}

// Opens the plans of the ramp with the communicators of the full step, and in its memory. Devices that try
// work overwrite that, so all are there before anything that lasts is written.
void Trainer::open_ramp() {
  ExecutorOptions options = executor_options(assembly_, gate_);
  options.base_program = &memory();
  for (const RampPlans& ramp : assembly_.ramp()) {
    const Plan& plan = assembly_.plan_of(ramp, assembly_.rank());
    std::vector<Probe*> probes;
    if (membership_.ramp_probes) probes = membership_.ramp_probes(assembly_, plan, peers_.communicators());
    fewer_.try_emplace(ramp.accumulate, assembly_, plan, options, queues_over(plan), std::move(probes));
  }
}

// Opens evaluation with the communicators of training, and in its memory.
void Trainer::open_evaluation(PluginHost& plugins) {
  if (!assembly_.evaluation()) return;
  evaluator_.emplace(evaluation_parts(), open_data(assembly_, plugins, DataPart::validation));
  if (assembly_.recipe().flag("eval.average")) averages_.emplace(assembly_, memory());
}

ForwardParts Trainer::evaluation_parts() {
  const Plan& plan = assembly_.evaluation_plan();
  return {assembly_,
          *assembly_.evaluation(),
          plan,
          &memory(),
          queues_over(plan),
          probes_of(membership_.evaluation_probes, assembly_, peers_.communicators())};
}

std::vector<QueueComm> Trainer::queues() {
  return peers_.communicators() ? peers_.communicators()->queues() : echo_.queues();
}

// Returns, by queue of a plan that is over the full step's, the communicators: it has no queue that the full
// one lacks.
std::vector<QueueComm> Trainer::queues_over(const Plan& plan) {
  const std::vector<QueueInfo>& known = assembly_.plan().queues;
  const std::vector<QueueComm> all = queues();
  std::vector<QueueComm> comms(plan.queues.size());
  for (std::size_t q = 0; q < comms.size(); ++q) {
    if (!plan.queues[q].communicates()) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const QueueInfo& queue) { return queue.name == plan.queues[q].name; });
    PRUN_CHECK(same != known.end(), "queue ", plan.queues[q].name, " is not one of the full step");
    comms[q] = all[static_cast<std::size_t>(same - known.begin())];
  }
  return comms;
}

// Watches replicas; this comes before anything that lasts is written.
void Trainer::watch_replicas() {
  if (peers_.communicators() && assembly_.recipe().integer("run.compare_every") > 0)
    replicas_.emplace(assembly_, memory());
}

std::unique_ptr<StartValues> Trainer::restore(PluginHost& plugins) {
  const std::string& resume = assembly_.recipe().text("run.resume");
  if (resume.empty()) {
    progress_.loss_scale = scaler_.begin();
    std::unique_ptr<StartValues> start = open_start_values(assembly_.recipe(), assembly_.program(), plugins);
    initialize(assembly_, memory(), start.get());
    if (start && assembly_.rank() == 0 && has_base(assembly_.program()))
      base_ = start->content(host_threads(assembly_.device_info(), assembly_.mesh().world()));
    return start;
  }
  const std::unique_ptr<StartValues> base = open_base(assembly_.recipe(), assembly_.program(), plugins);
  loaded_ = load_checkpoint(assembly_, memory(), resume, announce_to_all(membership_, assembly_), base.get());
  progress_ = loaded_->manifest.progress;
  progress_.loss_scale = scaler_.resumed(progress_.loss_scale);
  base_ = loaded_->manifest.base;
  return nullptr;
}

void Trainer::check_all_start_alike(PluginHost& plugins, const StartValues* weights) const {
  if (loaded_) check_sets(*loaded_, sizes_of(samples_), assembly_.recipe());
  if (peers_.communicators())
    check_start(assembly_.mesh(), plugins,
                {loaded_, weights, samples_, evaluator_ ? &evaluator_->samples() : nullptr},
                membership_.exchange);
}

// Prepares saves: opening has loaded the last of the plugins.
void Trainer::prepare_saves(const PluginHost& plugins) {
  saves_.emplace(assembly_, memory(), gate_, loaded_, sizes_of(samples_), plugin_record(plugins),
                 announce_to_all(membership_, assembly_), membership_.saving, base_);
}

// ------------------------------------------------------------------- steps

StepRunner& Trainer::runner_of(std::int64_t global) {
  const std::int64_t microbatches = assembly_.batch().with_global(global).accumulate;
  return microbatches == assembly_.batch().accumulate ? full_ : fewer_.at(microbatches);
}

// Counts samples once the steps that run are done.
std::int64_t Trainer::samples_taken() const {
  std::int64_t samples = progress_.samples;
  for (std::int64_t step = 0; step < running(); ++step) samples += ramp_.global_at(samples);
  return samples;
}

// Reads the next step's batch, as soon as a step has left it its side; if that has another plan, as soon as
// nothing runs.
void Trainer::read_ahead() {
  if (is_read_ || running() == now_->may_run()) return;
  const std::int64_t first = samples_taken(), global = ramp_.global_at(first);
  StepRunner& next = runner_of(global);
  if (&next != now_ && running() > 0) return;
  now_ = &next;
  reader_.start(first, global, next.batch());
  is_read_ = true;
}

// Reports the step that other ranks may wait for: the earliest that is not finished.
void Trainer::say_step() const {
  if (membership_.before_step) membership_.before_step(progress_.step + 1);
}

void Trainer::start(bool stop, bool save) {
  PRUN_CHECK(!save || assembly_.rank() == 0, "rank ", assembly_.rank(), " wishes to save");
  PRUN_CHECK(can_start(), "the next step has another plan than the ", running(), " that run");
  if (running() == 0) say_step();
  const std::int64_t global = ramp_.global_at(samples_taken());
  now_->start(progress_, {global, reader_.finish()}, {stop, save});
  is_read_ = false;
  read_ahead();
}

StepResult Trainer::finish() {
  StepResult result = now_->finish(progress_);
  result.sequences = global();
  ++progress_.step;
  progress_.loss_scale = scaler_.after(progress_.loss_scale, result.kept);
  progress_.updates += result.kept;
  progress_.samples += result.sequences;
  if (running() > 0) say_step();
  read_ahead();
  return result;
}

// ------------------------------------------------------------------- between steps

void Trainer::compare_replicas() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be compared");
  if (replicas_) replicas_->compare(progress_.step, membership_.exchange);
}

// Evaluates; averages go first: where the program gathers parameters, it leaves those behind that it has read
// last. Before the first update there is no average.
Evaluation Trainer::evaluate() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be evaluated");
  PRUN_CHECK(evaluator_, "the recipe evaluates nothing");
  const std::int64_t batches = assembly_.recipe().integer("eval.batches");
  Evaluation evaluation;
  if (averages_ && progress_.updates > 0) {
    averages_->put_in_place();
    evaluation.averaged = evaluator_->run(batches).loss;
    averages_->put_back();
  }
  evaluation.whole = evaluator_->run(batches);
  if (assembly_.recipe().flag("eval.by_set")) evaluation.sets = evaluator_->run_by_set(batches);
  return evaluation;
}

void Trainer::begin_save() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be saved");
  saves_->begin(progress_, replicas_ ? replicas_->saved_sums(progress_.step) : SavedSums{});
}

std::filesystem::path Trainer::save() {
  begin_save();
  finish_save();
  return checkpoint_path(folder(), progress_.step);
}

std::vector<std::string> Trainer::resume_notes() const {
  if (loaded_) return prun::resume_notes(assembly_, *loaded_, saves_->plugins());
  const std::string& init = assembly_.recipe().text("model.init");
  if (init.empty()) return {};
  return {"parameters start from " + init};
}

std::vector<std::string> Trainer::resume_warnings() const {
  return loaded_ ? prun::resume_warnings(*loaded_) : std::vector<std::string>{};
}

}  // namespace prun
