#include "train/loop/run.hpp"

#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>
#include <utility>

#include "base/durable_file.hpp"
#include "program/flops.hpp"
#include "train/checkpoint/plugin_record.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/observers.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {
namespace {

class Run {
 public:
  Run(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command, Membership membership)
      : assembly_(assembly),
        recipe_(assembly.recipe()),
        observers_(recipe_, plugins, assembly.rank()),
        trainer_(assembly, plugins, std::move(membership)),
        plugins_(plugins),
        resume_command_(resume_command),
        steps_(recipe_.integer("run.steps")),
        save_every_(recipe_.integer("run.save_every")),
        compare_every_(recipe_.integer("run.compare_every")),
        eval_every_(recipe_.integer("eval.every")),
        save_minutes_(recipe_.number("run.save_minutes")) {}

  int go() {
    try {
      return run();
    } catch (const Error& error) {
      tell_failure(error);
      throw;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  int run() {
    stop_.emplace();
    announce();
    observers_.raise_failure();
    while (trainer_.progress().step < steps_) {
      start_steps();
      Wishes wishes = finish_step();
      // Steps that run already are finished, here as on the other ranks.
      while ((wishes.stop || wishes.save) && trainer_.running() > 0) wishes.stop |= finish_step().stop;
      if (wishes.stop) return stopped();
      if (compares_after(trainer_.progress().step)) compare();
      if (evaluates_after(trainer_.progress().step)) evaluate();
      if (wishes.save || saves_after(trainer_.progress().step)) save();
    }
    if (eval_every_ > 0 && evaluated_ != trainer_.progress().step) evaluate();
    if (saves(recipe_) && begun_ != trainer_.progress().step) save();
    finish_save();
    observers_.finish(trainer_.memory_of_ranks(), stood_still_for(save_time_));
    observers_.raise_failure();
    return 0;
  }

  bool wants_to_stop() const { return stop_->received() != 0 || observers_.have_failed(); }

  // What ends the run here, for logs and whoever reads them later. What another rank has done the launcher
  // tells, and what has diverged was told as it was found.
  void tell_failure(const Error& error) {
    for (const ErrorCode known : {ErrorCode::comm_failed, ErrorCode::hang, ErrorCode::diverged})
      if (error.code() == known) return;
    observers_.event(EventKind::failed, error.what());
  }

  void announce() {
    begin_ = saved_at_ = Clock::now();
    if (assembly_.rank() == 0) announce_run();
    if (saves(recipe_)) in_folder([&] { trainer_.try_save(); });
  }

  void announce_run() {
    trainer_.claim_folder();
    folder_.emplace(trainer_.folder());
    put_text_file(trainer_.folder() / "recipe.toml", recipe_.resolved_toml());
    put_text_file(trainer_.folder() / "plugins.json", plugin_record(plugins_) + "\n");
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
        model_flops(assembly_.unlowered()) /
        static_cast<double>(assembly_.batch().micro * assembly_.batch().ranks * assembly_.batch().seq);
    info.peak_flops = assembly_.device_info().peak_flops * static_cast<double>(assembly_.mesh().world());
    info.plan_bytes = assembly_.plan().layout.bytes_in_memory();
    observers_.start(info);
    observers_.event(EventKind::note, "batch: " + assembly_.batch().text());
    if (const std::string said = ignored_stop_signals_text(); !said.empty())
      observers_.event(EventKind::note, said);
    for (const std::string& said : assembly_.program().requests().said_to_fit)
      observers_.event(EventKind::note, said);
    for (const std::string& said : trainer_.resume_warnings()) observers_.event(EventKind::warning, said);
    for (const std::string& said : trainer_.resume_notes()) observers_.event(EventKind::note, said);
  }

  bool saves_after(std::int64_t step) const { return save_every_ > 0 && step % save_every_ == 0; }
  // The first rank's clock tells the time for all.
  bool is_time_to_save() const {
    return save_minutes_ > 0 && assembly_.rank() == 0 &&
           Clock::now() - saved_at_ >= std::chrono::duration<double, std::ratio<60>>(save_minutes_);
  }
  bool compares_after(std::int64_t step) const {
    return !alone() && compare_every_ > 0 && step % compare_every_ == 0;
  }
  bool evaluates_after(std::int64_t step) const { return eval_every_ > 0 && step % eval_every_ == 0; }
  bool alone() const { return assembly_.mesh().world() == 1; }

  // The next step, and the one behind it as well where nothing is to happen between the two: so no queue
  // waits for the host. All ranks must find the same.
  void start_steps() {
    if (trainer_.running() == 0) {
      last_ = Clock::now();
      trainer_.start(wants_to_stop(), is_time_to_save());
    }
    const std::int64_t runs = trainer_.progress().step + 1;
    if (runs < steps_ && !saves_after(runs) && !compares_after(runs) && !evaluates_after(runs) &&
        !(alone() && wants_to_stop()))
      start_behind();
  }

  // Without its data, say, a step cannot be started; the one before it is done all the same.
  void start_behind() {
    try {
      trainer_.start(wants_to_stop(), is_time_to_save());
    } catch (const Error&) {
      finish_step();
      throw;
    }
  }

  struct Wishes {
    bool stop = false, save = false;
  };

  // Whether the run is to stop or to save here. Alone, a rank stops at once; many agree in the step they do
  // together.
  Wishes finish_step() {
    const StepResult result = trainer_.finish();
    const Clock::time_point now = Clock::now();
    StepInfo info;
    info.step = trainer_.progress().step;
    info.loss = result.loss;
    info.grad_norm = result.grad_norm;
    info.lr = result.lr;
    info.kept = result.kept;
    info.targets = result.targets;
    info.seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
    info.elapsed = std::chrono::duration<double>(now - begin_).count();
    info.exposed_seconds = result.exposed_communication.value_or(-1);
    info.save_seconds = stood_still_for(save_time_);
    info.compare_seconds = stood_still_for(compare_time_);
    read_meter(info);
    observers_.step(info);
    in_folder([&] { tell_saved(); });
    if (!result.kept) non_finite(result);
    return {result.stop || (alone() && wants_to_stop()), result.save};
  }

  // Other ranks' devices are taken to draw what the first one's does: nothing is exchanged for it.
  void read_meter(StepInfo& info) {
    const Assembly& assembly = trainer_.assembly();
    DeviceMeter meter;
    raise(assembly.devices().front()->meter(&meter));
    info.watts = meter.watts;
    info.clock_mhz = meter.clock_mhz;
    info.joules = meter.watts * info.seconds * static_cast<double>(assembly.mesh().world());
  }

  // The update was masked: parameters and optimizer state are those of the step before, and where that stops
  // the run, the step behind leaves them so. Or updates did not wait for the norm: then nothing is saved.
  void non_finite(const StepResult& result) {
    const std::string what = detail::concat(
        "step ", trainer_.progress().step, ": ", std::isfinite(result.loss) ? "" : "the loss is not finite; ",
        result.non_finite.empty() ? "no gradient is non-finite by itself"
                                  : "the gradient of '" + result.non_finite + "' is not finite");
    if (recipe_.text("run.on_nonfinite") == "skip") {
      observers_.event(EventKind::warning, what + "; the update was skipped");
      return;
    }
    observers_.event(EventKind::failed, what);
    finish_save();
    const bool updated = updates_before_norm(trainer_.assembly().program());
    throw_error(ErrorCode::diverged, what,
                updated
                    ? "; parameters are partly updated, since updates do not wait for the norm where nothing "
                      "is clipped, and are not saved"
                    : "; nothing was updated",
                ". Lower optimizer.lr, set optimizer.clip, or run.on_nonfinite = \"skip\"");
  }

  void compare() {
    if (compared_ == trainer_.progress().step) return;
    const StandStill counted(compare_time_);
    try {
      trainer_.compare_replicas();
      compared_ = trainer_.progress().step;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::diverged) {
        observers_.event(EventKind::failed, error.what());
        finish_save();  // of what was the same on all ranks
      }
      throw;
    }
  }

  // Adds the time for which it lives, while no step runs.
  class StandStill {
   public:
    explicit StandStill(Clock::duration& time) : time_(time) {}
    ~StandStill() { time_ += Clock::now() - begin_; }
    StandStill(const StandStill&) = delete;
    StandStill& operator=(const StandStill&) = delete;

   private:
    Clock::duration& time_;
    Clock::time_point begin_ = Clock::now();
  };

  // What was added since it was asked last, in seconds.
  static double stood_still_for(Clock::duration& time) {
    return std::chrono::duration<double>(std::exchange(time, Clock::duration{})).count();
  }

  void evaluate() {
    const Clock::time_point begin = Clock::now();
    const Evaluated evaluated = trainer_.evaluate();
    EvaluationInfo info;
    info.step = evaluated_ = trainer_.progress().step;
    info.loss = evaluated.loss;
    info.targets = evaluated.targets;
    info.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    observers_.evaluation(info);
  }

  void save() {
    compare();
    const StandStill counted(save_time_);
    if (folder_) folder_->check();
    in_folder([&] { trainer_.begin_save(); });
    begun_ = trainer_.progress().step;
    saved_at_ = Clock::now();
  }

  void finish_save() {
    if (begun_ < 0) return;
    const StandStill counted(save_time_);
    in_folder([&] {
      trainer_.finish_save();
      tell_saved();
    });
  }

  void tell_saved() {
    if (const auto path = trainer_.saved()) observers_.event(EventKind::saved, path->string());
  }

  // Without its folder a save goes nowhere, or into another one of that name.
  template <class Body>
  void in_folder(Body&& body) {
    try {
      body();
    } catch (const Error&) {
      if (folder_) folder_->check();
      throw;
    }
  }

  int stopped() {
    save();
    finish_save();
    observers_.event(EventKind::stopped, detail::concat("stopped at step ", trainer_.progress().step,
                                                        "; go on with: ", resume_command_,
                                                        " --set run.resume=", trainer_.folder().string()));
    observers_.finish(trainer_.memory_of_ranks(), stood_still_for(save_time_));
    observers_.raise_failure();
    // Another rank may have had the signal first.
    return 128 + (stop_->received() != 0 ? stop_->received() : SIGTERM);
  }

  const Assembly& assembly_;
  const Recipe& recipe_;
  Observers observers_;  // they hear what plugins say while the trainer is made
  Trainer trainer_;
  std::optional<StopSignal> stop_;  // from then on that all ranks have met
  PluginHost& plugins_;
  std::string resume_command_;
  const std::int64_t steps_, save_every_, compare_every_, eval_every_;
  const double save_minutes_;
  std::int64_t compared_ = -1;           // the step that ranks were compared after last
  std::int64_t evaluated_ = -1;          // the step of the last evaluation
  std::int64_t begun_ = -1;              // the step of the last save
  std::optional<FolderInPlace> folder_;  // the first rank's
  Clock::time_point begin_, last_;       // of the run; since when the step to finish next counts
  Clock::time_point saved_at_;
  Clock::duration save_time_{}, compare_time_{};  // that training stood still and nobody was told of
};

}  // namespace

int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
          Membership membership) {
  return Run(assembly, plugins, resume_command, std::move(membership)).go();
}

}  // namespace prun
