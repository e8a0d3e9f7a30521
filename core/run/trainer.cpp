#include "run/trainer.hpp"

#include <chrono>
#include <cmath>
#include <csignal>

#include "base/durable_file.hpp"
#include "base/json.hpp"
#include "base/random.hpp"
#include "run/agreement.hpp"
#include "run/stop_signal.hpp"
#include "run/weights.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

fs::path run_folder(const Recipe& recipe) {
  const std::string& out = recipe.text("run.out");
  return out.empty() ? fs::path("runs") / recipe.text("run.name") : fs::path(out);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, "cannot create the run folder ", folder.string(), ": ", error.message());
}

// Rows of the smallest table that tokens are looked up in.
std::int64_t vocabulary(const Program& program) {
  std::int64_t rows = INT32_MAX;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
      const Op& op = program.op(id);
      if (op.kind() == "embedding" || op.kind() == "lm_head" || op.kind() == "lm_head_scan")
        rows = std::min(rows, program.value(op.operands[1]).dims[0].extent);
    }
  return rows;
}

Id staged_value(const Program& program, const std::string& name) {
  for (Id id : program.segment(program.step_segment()).values)
    if (program.value(id).role == Role::staging && program.value(id).name == name) return id;
  throw_error(ErrorCode::internal, "no staged value '", name, "'");
}

// What dropout draws from in one step: exact in a double.
double step_seed(std::int64_t seed, std::int64_t step) {
  const RandomStream stream(static_cast<std::uint64_t>(seed),
                            stream_id("dropout", static_cast<std::uint64_t>(step)));
  return static_cast<double>(stream.bits64(0) >> 11);
}

}  // namespace

namespace {

std::unique_ptr<Communicators> connect(const Assembly& assembly, PluginHost& plugins,
                                       const Membership& membership) {
  if (assembly.mesh().world() == 1 || membership.alone) return nullptr;
  PRUN_CHECK(membership.exchange, "a mesh of ", assembly.mesh().world(), " ranks, and no way to meet them");
  check_agreement(assembly, membership.exchange);
  return std::make_unique<Communicators>(assembly, plugins, membership.exchange);
}

}  // namespace

Trainer::Trainer(const Assembly& assembly, PluginHost& plugins, Membership membership)
    : assembly_(assembly),
      membership_(std::move(membership)),
      communicators_(connect(assembly, plugins, membership_)),
      echo_(assembly.plan(), assembly.mesh(), assembly.rank()),
      executor_(
          assembly.program(), assembly.plan(), assembly.device(),
          {assembly.recipe().flag("run.poison"), assembly.rank()},
          communicators_ ? communicators_->queues() : echo_.queues(),
          membership_.probes ? membership_.probes(assembly, communicators_.get()) : std::vector<Probe*>{}),
      rate_(assembly.recipe()),
      folder_(run_folder(assembly.recipe())) {
  find_staged();
  open_data(plugins);
  restore();
  read_ahead();
}

Trainer::~Trainer() {
  if (membership_.disconnecting) membership_.disconnecting();
}

void Trainer::find_staged() {
  const auto find = [&](const char* name) { return staged_value(assembly_.program(), name); };
  staged_ = {find("tokens.staged"),      find("targets.staged"), find("samples.staged"),
             find("lr.staged"),          find("step.staged"),    find("seed.staged"),
             find("counted.staged"),     find("stop.staged"),    find("loss_sum.reported"),
             find("grad_norm.reported"), find("keep.reported"),  find("counted.reported"),
             find("stop.reported")};
  for (std::size_t axis = 0; axis < assembly_.mesh().size(); ++axis)
    if (const std::string name = "first." + assembly_.mesh().axes()[axis].name;
        assembly_.program().find_runtime(name) != none)
      first_.push_back(
          {find((name + ".staged").c_str()), assembly_.mesh().coordinate(assembly_.rank(), axis) == 0});
}

void Trainer::open_data(PluginHost& plugins) {
  const Recipe& recipe = assembly_.recipe();
  data_ = plugins.create<DataInterface>("data", recipe.section("data"));
  DataInfo info;
  const BatchArithmetic& batch = assembly_.batch();
  raise(data_->open(batch.seq, &info));
  if (info.samples < 1)
    throw_error(ErrorCode::bad_input, "data: there is not one sample of ", batch.seq, " tokens");
  const SampleOrder order(info.samples, recipe.flag("data.shuffle"), recipe.integer("run.seed"));
  const Program& program = assembly_.program();
  BatchShape shape;
  shape.microbatches = batch.accumulate;
  shape.rows = batch.micro * batch.ranks;
  shape.first_row = program.starts(staged_.samples, assembly_.rank())[0];
  shape.micro = batch.micro;
  shape.global = batch.global;
  shape.seq = batch.seq;
  shape.first_position = program.starts(staged_.tokens, assembly_.rank())[1];
  shape.positions = program.local_dims(staged_.tokens)[1].extent;
  shape.vocab = vocabulary(program);
  if (info.vocab > shape.vocab)
    throw_error(ErrorCode::bad_input, "data: tokens go up to ", info.vocab - 1,
                ", model.vocab = ", shape.vocab, " is too small; set model.vocab to at least ", info.vocab);
  reader_ = std::make_unique<BatchReader>(*data_, order, shape);
}

void Trainer::restore() {
  const std::string& resume = assembly_.recipe().text("run.resume");
  if (resume.empty())
    initialize(assembly_, executor_);
  else
    progress_ = load_checkpoint(assembly_, executor_, resume);
}

void Trainer::read_ahead() {
  std::vector<BatchTarget> list;
  for (std::int64_t m = 0; m < assembly_.batch().accumulate; ++m)
    list.push_back({reinterpret_cast<std::int32_t*>(executor_.staged(staged_.tokens, local_steps_, m)),
                    reinterpret_cast<std::int32_t*>(executor_.staged(staged_.targets, local_steps_, m)),
                    reinterpret_cast<std::int64_t*>(executor_.staged(staged_.samples, local_steps_, m))});
  reader_->start(progress_.samples, std::move(list));
}

void Trainer::write_scalar(Id id, double value) {
  *reinterpret_cast<double*>(executor_.staged(id, local_steps_, 0)) = value;
}

double Trainer::read_scalar(Id id) {
  return *reinterpret_cast<const double*>(executor_.staged(id, local_steps_, 0));
}

StepResult Trainer::step(bool stop) {
  if (membership_.before_step) membership_.before_step(progress_.step + 1);
  StepResult result;
  result.lr = rate_.at(progress_.updates + 1);
  write_scalar(staged_.counted, static_cast<double>(reader_->finish()));
  write_scalar(staged_.stop_in, stop);
  write_scalar(staged_.lr, result.lr);
  write_scalar(staged_.step, static_cast<double>(progress_.updates + 1));
  write_scalar(staged_.seed, step_seed(assembly_.recipe().integer("run.seed"), progress_.step));
  for (const auto& [id, first] : first_) write_scalar(id, first);
  executor_.start_step();
  progress_.samples += assembly_.batch().global;
  ++local_steps_;
  read_ahead();
  --local_steps_;
  executor_.finish_step();
  const double counted = read_scalar(staged_.all_counted);
  if (counted == 0)
    throw_error(ErrorCode::bad_input, "step ", progress_.step + 1, ": not one target of the batch counts");
  result.targets = static_cast<std::int64_t>(counted);
  result.loss = read_scalar(staged_.loss_sum) / counted;
  result.grad_norm = read_scalar(staged_.grad_norm);
  result.kept = read_scalar(staged_.keep) != 0;
  result.stop = read_scalar(staged_.stop_out) != 0;
  ++local_steps_;
  ++progress_.step;
  progress_.updates += result.kept;
  return result;
}

std::filesystem::path Trainer::save() {
  if (assembly_.rank() == 0) make_folder(folder_);
  Announce announce;
  if (membership_.exchange)
    announce = [this](std::string_view channel, std::string_view mine) {
      return membership_.exchange(channel, assembly_.mesh().ranks(), mine);
    };
  return save_checkpoint(assembly_, executor_, progress_, folder_, assembly_.recipe().integer("run.keep"),
                         announce);
}

// ---------------------------------------------------------------- the run

namespace {

// All observers of a run. One that fails ends the run: a log with holes is worse than none.
class Observers {
 public:
  Observers(const Recipe& recipe, PluginHost& plugins, std::int64_t rank) {
    if (rank != 0) return;
    for (const RecipeSection& section : recipe.sections("observer"))
      list_.push_back(plugins.create<ObserverInterface>("observer", section));
  }
  void start(const RunInfo& info) {
    for (auto& observer : list_) raise(observer->start(info));
  }
  void step(const StepInfo& info) {
    for (auto& observer : list_) raise(observer->step(info));
  }
  void event(EventKind kind, const std::string& message) {
    for (auto& observer : list_) raise(observer->event(kind, message));
  }
  void finish(const std::vector<RankMemory>& memory) {
    FinishInfo info;
    info.memory = {memory.data(), memory.size()};
    for (auto& observer : list_) raise(observer->finish(info));
  }

 private:
  std::vector<std::shared_ptr<ObserverInterface>> list_;
};

// Which code takes part: enough to tell two runs apart.
std::string plugin_record(const PluginHost& plugins) {
  JsonWriter json;
  json.begin_array();
  for (const auto& [key, library] : plugins.loaded()) {
    const PluginNote& note = library->note();
    json.begin_object().member("kind", note.kind).member("name", note.name).member("version", note.version);
    json.member("path", library->path().string()).member("sha256", library->sha256());
    json.member("build_id", note.build_id).end_object();
  }
  return json.end_array().take();
}

class Run {
 public:
  Run(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command, Membership membership)
      : assembly_(assembly),
        recipe_(assembly.recipe()),
        trainer_(assembly, plugins, std::move(membership)),
        observers_(recipe_, plugins, assembly.rank()),
        plugins_(plugins),
        resume_command_(resume_command) {}

  int go() {
    announce();
    const std::int64_t steps = recipe_.integer("run.steps"), save_every = recipe_.integer("run.save_every");
    while (trainer_.progress().step < steps) {
      if (one_step()) return stopped();
      if (save_every > 0 && trainer_.progress().step % save_every == 0) save();
    }
    if (save_every > 0) save();
    observers_.finish(trainer_.memory_of_ranks());
    return 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void announce() {
    begin_ = Clock::now();
    if (assembly_.rank() != 0) return;
    make_folder(trainer_.folder());
    replace_text_file(trainer_.folder() / "recipe.toml", recipe_.resolved_toml());
    replace_text_file(trainer_.folder() / "plugins.json", plugin_record(plugins_) + "\n");
    const std::string folder = trainer_.folder().string(), text = recipe_.text("run.name");
    RunInfo info;
    info.name = text;
    info.folder = folder;
    info.recipe = text;
    info.device = assembly_.device_info().name;
    info.steps = recipe_.integer("run.steps");
    info.first_step = trainer_.progress().step + 1;
    info.parameters = assembly_.parameters();
    info.tokens_per_step = assembly_.batch().tokens();
    info.flops_per_token =
        model_flops(assembly_.program()) /
        static_cast<double>(assembly_.batch().micro * assembly_.batch().ranks * assembly_.batch().seq);
    info.peak_flops = assembly_.device_info().peak_flops * static_cast<double>(assembly_.mesh().world());
    info.plan_bytes = assembly_.plan().layout.memory.total();
    observers_.start(info);
    observers_.event(EventKind::note, "batch: " + assembly_.batch().text());
  }

  // Whether the run is to stop here. Alone, a rank stops at once; many agree in the step they do together.
  bool one_step() {
    const Clock::time_point before = Clock::now();
    const StepResult result = trainer_.step(stop_.received() != 0);
    const Clock::time_point now = Clock::now();
    StepInfo info;
    info.step = trainer_.progress().step;
    info.loss = result.loss;
    info.grad_norm = result.grad_norm;
    info.lr = result.lr;
    info.kept = result.kept;
    info.targets = result.targets;
    info.seconds = std::chrono::duration<double>(now - before).count();
    info.elapsed = std::chrono::duration<double>(now - begin_).count();
    observers_.step(info);
    if (!result.kept) non_finite(result);
    return result.stop || (assembly_.mesh().world() == 1 && stop_.received() != 0);
  }

  // The update was masked: parameters and optimizer state are those of the step before.
  void non_finite(const StepResult& result) {
    const std::string tensor = first_non_finite_gradient(assembly_, trainer_.executor());
    const std::string what = detail::concat(
        "step ", trainer_.progress().step, ": ", std::isfinite(result.loss) ? "" : "the loss is not finite; ",
        tensor.empty() ? "no gradient is non-finite by itself"
                       : "the gradient of '" + tensor + "' is not finite");
    if (recipe_.text("run.on_nonfinite") == "skip") {
      observers_.event(EventKind::warning, what + "; the update was skipped");
      return;
    }
    observers_.event(EventKind::failed, what);
    throw_error(
        ErrorCode::diverged, what,
        "; nothing was updated. Lower optimizer.lr, set optimizer.clip, or run.on_nonfinite = \"skip\"");
  }

  void save() { observers_.event(EventKind::saved, "saved " + trainer_.save().string()); }

  int stopped() {
    if (assembly_.pipeline()) {
      observers_.event(EventKind::stopped,
                       detail::concat("stopped at step ", trainer_.progress().step,
                                      "; nothing was saved: checkpoints of a pipeline are not written yet"));
      observers_.finish(trainer_.memory_of_ranks());
      return 128 + (stop_.received() != 0 ? stop_.received() : SIGTERM);
    }
    save();
    observers_.event(EventKind::stopped, detail::concat("stopped at step ", trainer_.progress().step,
                                                        "; go on with: ", resume_command_,
                                                        " --set run.resume=", trainer_.folder().string()));
    observers_.finish(trainer_.memory_of_ranks());
    // Another rank may have had the signal first.
    return 128 + (stop_.received() != 0 ? stop_.received() : SIGTERM);
  }

  const Assembly& assembly_;
  const Recipe& recipe_;
  StopSignal stop_;
  Trainer trainer_;
  Observers observers_;
  PluginHost& plugins_;
  std::string resume_command_;
  Clock::time_point begin_;
};

}  // namespace

int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
          Membership membership) {
  return Run(assembly, plugins, resume_command, std::move(membership)).go();
}

}  // namespace prun
