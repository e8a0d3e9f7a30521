// The constructor starts a run: what it makes and does stands there in order.
#include "train/loop/trainer.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/agreement.hpp"

namespace prun {

// ------------------------------------------------------------------- step runners

std::vector<QueueComm> QueueComms::of(const Plan& plan) {
  const std::vector<QueueInfo>& known = assembly_.plan().queues;
  const std::vector<QueueComm> all = of_full_step();
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

StepRunners::StepRunners(const Assembly& assembly, const Membership& membership, const Peers& peers,
                         QueueComms& comms, SaveGate& gate)
    : assembly_(assembly),
      options_{assembly.recipe().flag("run.poison"), assembly.rank(),
               assembly.recipe().integer("run.measure_comm"), nullptr, &gate},
      full_steps_(membership.full_steps),
      full_(assembly, assembly.plan(), options_, comms.of_full_step(),
            probes_of(membership.probes, assembly, peers.communicators())) {}

void StepRunners::open_others(const Membership& membership, const Peers& peers, QueueComms& comms) {
  ExecutorOptions options = options_;
  options.base_program = &memory();
  if (full_steps_) return;
  for (const StepPlans& step : assembly_.other_steps()) {
    const Plan& plan = assembly_.plan_of(step, assembly_.rank());
    std::vector<Probe*> probes;
    if (membership.other_probes) probes = membership.other_probes(assembly_, plan, peers.communicators());
    others_.try_emplace(step.kind, assembly_, plan, options, comms.of(plan), std::move(probes));
  }
}

StepRunner& StepRunners::runner_of(std::int64_t number, std::int64_t global) {
  if (full_steps_) return full_;
  const std::int64_t period = assembly_.period();
  const StepKind kind{assembly_.batch().with_global(global).accumulate, period > 0 && number % period == 0};
  return kind == assembly_.full_step() ? full_ : others_.at(kind);
}

bool StepRunners::turn_to(std::int64_t number, std::int64_t global) {
  StepRunner& next = runner_of(number, global);
  if (&next != now_ && now_->running() > 0) return false;
  now_ = &next;
  return true;
}

namespace {

// ------------------------------------------------------------------- trainer

// Returns the peak. It is not from getrusage, whose figure goes back to before exec, to the process that
// started this one. Huge pages that were set aside are counted separately. A system without such lines gives
// 0.
std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::int64_t bytes = 0;
  for (std::string key; status >> key; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (std::int64_t kibibytes = 0; (key == "VmHWM:" || key == "HugetlbPages:") && status >> kibibytes)
      bytes += kibibytes * 1024;
  return bytes;
}

std::string to_text(const RankMemory& memory) {
  return detail::concat(memory.plan_bytes, " ", memory.process_bytes, " ", memory.peak_bytes, " ",
                        memory.device_plan_bytes, " ", memory.device_process_bytes, " ", memory.device_bytes);
}

RankMemory read_memory(const std::string& text) {
  std::istringstream words(text);
  RankMemory memory;
  words >> memory.plan_bytes >> memory.process_bytes >> memory.peak_bytes >> memory.device_plan_bytes >>
      memory.device_process_bytes >> memory.device_bytes;
  PRUN_CHECK(words, "memory of a rank: '", text, "'");
  return memory;
}

RankMemory memory_of(const Assembly& assembly) {
  const Plan& plan = assembly.plan();
  RankMemory own;
  own.process_bytes = assembly.process_bytes();
  own.peak_bytes = peak_resident_bytes();
  if (assembly.device_info().host_memory) {
    own.plan_bytes = plan.layout.bytes_in_memory();
    return own;
  }
  own.device_plan_bytes = assembly.bytes_in_memory_of(0, plan);
  own.plan_bytes = plan.layout.bytes_in_memory() - own.device_plan_bytes;
  own.device_process_bytes = assembly.process_device_bytes();
  raise(assembly.devices().front()->memory_in_use(&own.device_bytes));
  return own;
}

}  // namespace

std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange) {
  const RankMemory own = memory_of(assembly);
  if (!exchange) return {own};
  std::vector<RankMemory> all;
  for (const std::string& text : exchange("memory", assembly.mesh().ranks(), to_text(own)))
    all.push_back(read_memory(text));
  return all;
}

// ------------------------------------------------------------------- the start

// Starts a run. Kernels are those that the checkpoint was made with; the ranks agree and connect; memory and
// launches are there; data is open. Then what the recipe wants in addition is made, memory is filled, all
// ranks check that they begin from the same, and the first batch is on its way.
Trainer::Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership)
    : assembly_(with_kernel_choices(assembly)),
      membership_(std::move(membership)),
      peers_(assembly, plugins, membership_),
      comms_(assembly, peers_.communicators()),
      gate_(assembly.plan().save_reads.size()),
      ramp_(BatchRamp::of(assembly.recipe())),
      runners_(assembly, membership_, peers_, comms_, gate_),
      samples_(open_data(assembly, plugins)),
      reader_(samples_, batch_shape(assembly, assembly.program())),
      scaler_(assembly.recipe()) {
  runners_.open_others(membership_, peers_, comms_);
  open_evaluation(plugins);
  watch_replicas();
  fill_memory(plugins);
  // Opening has loaded the last of the plugins.
  saves_.emplace(assembly_, memory(), gate_, start_->loaded(), sizes_of(samples_), plugin_record(plugins),
                 announce_to_all(membership_, assembly_), membership_.saving, start_->base());
  read_ahead();
}

// Opens evaluation with the communicators of training, and in its memory.
void Trainer::open_evaluation(PluginHost& plugins) {
  if (!assembly_.evaluation()) return;
  const Plan& plan = assembly_.evaluation_plan();
  const ForwardParts parts{assembly_,
                           *assembly_.evaluation(),
                           plan,
                           &memory(),
                           comms_.of(plan),
                           probes_of(membership_.evaluation_probes, assembly_, peers_.communicators())};
  validation_.emplace(parts, open_data(assembly_, plugins, DataPart::validation));
}

// Watches replicas; this comes before anything that lasts is written.
void Trainer::watch_replicas() {
  if (peers_.communicators() && assembly_.recipe().integer("run.check_replicas_every") > 0)
    replicas_.emplace(assembly_, memory());
}

// Fills memory, and compares with all ranks what the run starts from; its files are not needed any more then.
void Trainer::fill_memory(PluginHost& plugins) {
  start_.emplace(assembly_, memory(), plugins, announce_to_all(membership_, assembly_), scaler_);
  progress_ = start_->progress();
  if (start_->loaded()) check_sets(*start_->loaded(), sizes_of(samples_), assembly_.recipe());
  if (peers_.communicators())
    check_start(
        assembly_.mesh(), plugins,
        {start_->loaded(), start_->weights(), samples_, validation_ ? &validation_->samples() : nullptr},
        membership_.exchange);
  start_->close_weights();
}

// ------------------------------------------------------------------- steps

// Counts samples once the steps that run are done.
std::int64_t Trainer::samples_taken() const {
  std::int64_t samples = progress_.samples;
  for (std::int64_t step = 0; step < running(); ++step) samples += ramp_.global_at(samples);
  return samples;
}

// Reads the next step's batch, as soon as a step has left it its side; if that has another plan, as soon as
// nothing runs.
void Trainer::read_ahead() {
  if (is_read_ || running() == runners_.now().may_run()) return;
  const std::int64_t first = samples_taken(), global = ramp_.global_at(first);
  if (!runners_.turn_to(progress_.step + running() + 1, global)) return;
  reader_.start(first, global, runners_.now().batch());
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
  runners_.now().start(progress_, {global, reader_.finish()}, {stop, save});
  is_read_ = false;
  read_ahead();
}

StepResult Trainer::finish() {
  StepResult result = runners_.now().finish(progress_);
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

Evaluation Trainer::evaluate() {
  PRUN_CHECK(running() == 0, running(), " steps still change what is to be evaluated");
  PRUN_CHECK(validation_, "the recipe evaluates nothing");
  return validation_->run(progress_.updates);
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

}  // namespace prun
