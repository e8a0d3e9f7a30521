#include "train/loop/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "base/durable_file.hpp"
#include "base/random.hpp"
#include "plan/comm_needs.hpp"
#include "program/passes.hpp"
#include "train/checkpoint/plugin_record.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/agreement.hpp"
#include "train/loop/kernel_choices.hpp"

namespace prun {
namespace {

// Ranks' wishes are summed: those to stop count one each, and one rank's to save half of one.
constexpr double wish_to_save = 0.5;

// What dropout draws from in one step: exact in a double.
double step_seed(std::int64_t seed, std::int64_t step) {
  const RandomStream stream(static_cast<std::uint64_t>(seed),
                            stream_id("dropout", static_cast<std::uint64_t>(step)));
  return static_cast<double>(stream.bits64(0) >> 11);
}

}  // namespace

std::unique_ptr<Communicators> connect(const Assembly& assembly, PluginHost& plugins,
                                       const Membership& membership) {
  if (assembly.mesh().world() == 1 || membership.alone) return nullptr;
  PRUN_CHECK(membership.exchange, "a mesh of ", assembly.mesh().world(), " ranks, and no way to meet them");
  check_agreement(assembly, plugins, membership.exchange);
  return std::make_unique<Communicators>(CommMaking{
      assembly.mesh(), assembly.rank(),
      [&](std::int64_t rank) -> const Plan& { return assembly.plan_of(rank); }, *assembly.devices().front(),
      [&](const std::string& axis) { return comm_of_axis(assembly.recipe(), plugins, axis); },
      [&](const std::string& plugin) {
        return make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin);
      },
      membership.exchange});
}

CommunicatorLease lend(const Membership& membership, Communicators* communicators) {
  return communicators && membership.connected ? membership.connected(*communicators) : nullptr;
}

Trainer::Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership)
    : assembly_(with_kernel_choices(assembly)),
      membership_(std::move(membership)),
      communicators_(connect(assembly, plugins, membership_)),
      lease_(lend(membership_, communicators_.get())),
      echo_(assembly.plan(), assembly.mesh(), assembly.rank()),
      executor_(
          assembly.program(), assembly.plan(), assembly.devices(),
          {assembly.recipe().flag("run.poison"), assembly.rank(),
           assembly.recipe().integer("run.measure_comm")},
          communicators_ ? communicators_->queues() : echo_.queues(),
          membership_.probes ? membership_.probes(assembly, communicators_.get()) : std::vector<Probe*>{}),
      staged_(staged_values(assembly.program())),
      rate_(assembly.recipe()),
      folder_(run_folder(assembly.recipe())),
      samples_(open_data(assembly, plugins)),
      reader_(samples_, batch_shape(assembly, assembly.program())) {
  if (assembly.evaluation())
    evaluator_.emplace(evaluation_parts(), open_data(assembly, plugins, DataPart::validation));
  if (communicators_ && assembly.recipe().integer("run.compare_every") > 0)
    replicas_.emplace(assembly, memory());
  const std::unique_ptr<StartValues> weights = restore(plugins);
  if (loaded_) check_sets(*loaded_, sizes_of(samples_), assembly.recipe());
  if (communicators_)
    check_start(assembly.mesh(), plugins,
                {loaded_, weights.get(), samples_, evaluator_ ? &evaluator_->samples() : nullptr},
                membership_.exchange);
  plugins_ = plugin_record(plugins);
  read_ahead();
}

// With the communicators of training, and in its memory.
ForwardParts Trainer::evaluation_parts() {
  const Plan &training = assembly_.plan(), &evaluation = assembly_.evaluation_plan();
  std::vector<QueueComm> comms(evaluation.queues.size());
  const std::vector<QueueComm> all = communicators_ ? communicators_->queues() : echo_.queues();
  for (std::size_t q = 0; q < comms.size(); ++q) {
    if (!evaluation.queues[q].communicates()) continue;
    const auto same =
        std::find_if(training.queues.begin(), training.queues.end(),
                     [&](const QueueInfo& queue) { return queue.name == evaluation.queues[q].name; });
    PRUN_CHECK(same != training.queues.end(), "queue ", evaluation.queues[q].name, " is not one of training");
    comms[q] = all[static_cast<std::size_t>(same - training.queues.begin())];
  }
  return {assembly_,
          *assembly_.evaluation(),
          evaluation,
          &memory(),
          std::move(comms),
          membership_.evaluation_probes ? membership_.evaluation_probes(assembly_, communicators_.get())
                                        : std::vector<Probe*>{}};
}

std::unique_ptr<StartValues> Trainer::restore(PluginHost& plugins) {
  const std::string& resume = assembly_.recipe().text("run.resume");
  if (resume.empty()) {
    std::unique_ptr<StartValues> start = open_start_values(assembly_, plugins);
    initialize(assembly_, memory(), start.get());
    return start;
  }
  loaded_ = load_checkpoint(assembly_, memory(), resume, announce());
  progress_ = loaded_->manifest.progress;
  return nullptr;
}

// The next step's batch, as soon as the step two before it has left it its side.
void Trainer::read_ahead() {
  if (read_ > started_ || running() == 2) return;
  reader_.start(progress_.samples + running() * assembly_.batch().global,
                batch_targets(memory(), staged_, started_, assembly_.batch().accumulate));
  ++read_;
}

void Trainer::write_scalar(Id id, double value) const {
  *reinterpret_cast<double*>(memory().staged(id, started_, 0)) = value;
}

void Trainer::write_outcome(const StagedOutcome& outcome, double kept, double masked) const {
  write_scalar(outcome.kept, kept);
  write_scalar(outcome.masked, masked);
}

// Of a step that runs nobody knows yet whether it is kept: where one does, there is one update more in the
// one case, and in the other, where that stops the run, none any more.
void Trainer::stage(double wishes) {
  const std::int64_t unknown = running(), next = progress_.updates + 1;
  write_scalar(staged_.counted, static_cast<double>(reader_.finish()));
  write_scalar(staged_.stop, wishes);
  write_outcome(staged_.lr, rate_.at(next + unknown), rate_.at(next));
  write_outcome(staged_.step, static_cast<double>(next + unknown), static_cast<double>(next));
  const bool halts = unknown > 0 && assembly_.recipe().text("run.on_nonfinite") == "stop";
  write_outcome(staged_.halt, 0, halts);
  if (staged_.go.kept != none) write_outcome(staged_.go, 1, !halts);
  write_scalar(staged_.seed, step_seed(assembly_.recipe().integer("run.seed"), progress_.step + unknown));
  for (AxisId axis = 0; axis < staged_.first.size(); ++axis)
    if (staged_.first[axis] != none)
      write_scalar(staged_.first[axis], assembly_.mesh().coordinate(assembly_.rank(), axis) == 0);
}

// The step that the others wait for, if they do: the earliest that is not finished.
void Trainer::say_step() const {
  if (membership_.before_step) membership_.before_step(progress_.step + 1);
}

void Trainer::start(bool stop, bool save) {
  PRUN_CHECK(!save || assembly_.rank() == 0, "rank ", assembly_.rank(), " wishes to save");
  if (running() == 0) say_step();
  stage((stop ? 1 : 0) + (save ? wish_to_save : 0));
  executor_.start_step();
  ++started_;
  read_ahead();
}

StepResult Trainer::finish() {
  const std::optional<double> exposed = executor_.finish_step();
  StepResult result = read_results();
  result.exposed_communication = exposed;
  ++finished_;
  ++progress_.step;
  progress_.updates += result.kept;
  progress_.samples += assembly_.batch().global;
  if (running() > 0) say_step();
  read_ahead();
  return result;
}

double Trainer::read_scalar(Id id) const {
  return *reinterpret_cast<const double*>(memory().staged(id, finished_, 0));
}

StepResult Trainer::read_results() const {
  const double counted = read_scalar(staged_.all_counted);
  if (counted == 0)
    throw_error(ErrorCode::bad_input, "step ", progress_.step + 1, ": not one target of the batch counts");
  StepResult result;
  result.lr = rate_.at(progress_.updates + 1);
  result.targets = static_cast<std::int64_t>(counted);
  result.loss = read_scalar(staged_.loss_sum) / counted;
  result.grad_norm = read_scalar(staged_.grad_norm);
  result.kept = read_scalar(staged_.keep) != 0;
  if (!result.kept) result.non_finite = first_non_finite();
  const double wishes = read_scalar(staged_.any_stop);
  result.stop = wishes >= 1;
  result.save = wishes != std::floor(wishes);
  return result;
}

std::string Trainer::first_non_finite() const {
  const auto* counts = reinterpret_cast<const double*>(memory().staged(staged_.non_finite, finished_, 0));
  for (const TrainedTensor& tensor : trained_tensors(assembly_.program()))
    if (*counts++ > 0) return full_name(assembly_.program(), tensor.parameter, tensor.layer);
  return "";
}

void Trainer::claim_folder() {
  if (assembly_.rank() != 0) return;
  make_folder(folder_);
  if (!run_.id.empty()) return keep_claim(folder_, run_);
  std::optional<Origin> origin;
  if (loaded_) origin = {loaded_->run_folder, loaded_->manifest.run, loaded_->manifest.progress.step};
  const RunIdentity run = prun::claim_folder(folder_, origin);
  clear_dead_saves(folder_);
  move_damaged();
  check_places_from(folder_, run, progress_.step);
  saves_ = last_save(folder_, run);
  run_ = run;
}

// Those of this folder, so that what comes next can be saved in their place.
void Trainer::move_damaged() {
  if (!loaded_) return;
  for (const LoadedCheckpoint::Damaged& damaged : loaded_->damaged)
    if (std::error_code ignored; std::filesystem::equivalent(damaged.folder.parent_path(), folder_, ignored))
      set_aside(damaged.folder, loaded_->folder);
}

Announce Trainer::announce() const {
  if (!membership_.exchange) return {};
  return [this](std::string_view channel, std::string_view mine) {
    return membership_.exchange(channel, assembly_.mesh().ranks(), mine);
  };
}

CheckpointSaver& Trainer::saver() {
  if (!saver_) saver_.emplace(assembly_, memory(), plugins_, announce());
  return *saver_;
}

std::vector<std::string> Trainer::resume_notes() const {
  if (loaded_) return prun::resume_notes(assembly_, *loaded_, plugins_);
  const std::string& init = assembly_.recipe().text("model.init");
  if (init.empty()) return {};
  return {"parameters start from " + init};
}

std::vector<std::string> Trainer::resume_warnings() const {
  std::vector<std::string> warnings;
  if (loaded_ && !loaded_->note.empty()) warnings.push_back(loaded_->note);
  if (loaded_)
    for (const LoadedCheckpoint::Damaged& damaged : loaded_->damaged)
      warnings.push_back(detail::concat("the checkpoint ", damaged.folder.string(), " cannot be used (",
                                        damaged.why, "); going on from the one before it, ",
                                        loaded_->folder.string()));
  return warnings;
}

void Trainer::compare_replicas() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be compared");
  if (replicas_) replicas_->compare(progress_.step, membership_.exchange);
}

Evaluated Trainer::evaluate() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be evaluated");
  PRUN_CHECK(evaluator_, "the recipe evaluates nothing");
  return evaluator_->run(assembly_.recipe().integer("eval.batches"));
}

void Trainer::begin_save() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be saved");
  claim_folder();
  const Recipe& recipe = assembly_.recipe();
  const Keep keep{recipe.integer("run.keep"), recipe.integer("run.keep_every")};
  saver().begin({folder_, run_, ++saves_, keep, sizes_of(samples_)}, progress_);
}

std::filesystem::path Trainer::save() {
  begin_save();
  finish_save();
  return checkpoint_path(folder_, progress_.step);
}

}  // namespace prun
