#include "train/loop/training_run.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/durable_file.hpp"
#include "program/flops.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/run_report.hpp"
#include "train/loop/stop_signal.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ best so far

// Keeps the results of evaluations: which one was the best, and whether the others since are too many.
class BestSoFar {
 public:
  // `before` is the best of the run so far, which is at `step`.
  BestSoFar(const Recipe& recipe, std::optional<BestCheckpoint> before, std::int64_t step)
      : keeps_(recipe.flag("eval.keep_best")), patience_(recipe.integer("eval.patience")) {
    const std::int64_t every = recipe.integer("eval.every");
    if (!before || before->step > step || every == 0) return;
    best_ = before;
    missed_ = step / every - before->step / every;
  }

  void take(std::int64_t step, double loss) {
    const bool lower = !best_ || loss < best_->loss;
    if (lower) best_ = {step, loss};
    missed_ = lower ? 0 : missed_ + 1;
  }
  // Says whether the checkpoint of this step is to be kept as the best.
  bool keeps(std::int64_t step) const { return keeps_ && best_ && best_->step == step; }
  bool is_over() const { return patience_ > 0 && missed_ >= patience_; }
  const std::optional<BestCheckpoint>& best() const { return best_; }

 private:
  bool keeps_;
  std::int64_t patience_, missed_ = 0;
  std::optional<BestCheckpoint> best_;
};

// ------------------------------------------------------------ run schedule

// Decides what a run does between two steps, and after which.
class RunSchedule {
 public:
  // `alone` says that there is no rank to compare with.
  RunSchedule(const Recipe& recipe, bool alone)
      : steps_(recipe.integer("run.steps")),
        save_every_(recipe.integer("run.save_every")),
        check_replicas_every_(alone ? 0 : recipe.integer("run.check_replicas_every")),
        eval_every_(recipe.integer("eval.every")) {}

  std::int64_t steps() const { return steps_; }
  bool saves_after(std::int64_t step) const { return is_multiple(step, save_every_); }
  bool compares_after(std::int64_t step) const { return is_multiple(step, check_replicas_every_); }
  bool evaluates() const { return eval_every_ > 0; }
  bool evaluates_after(std::int64_t step) const { return is_multiple(step, eval_every_); }
  // Says whether the next step may begin while this one runs.
  bool goes_on_after(std::int64_t step) const {
    return step < steps_ && !saves_after(step) && !compares_after(step) && !evaluates_after(step);
  }

 private:
  static bool is_multiple(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

  std::int64_t steps_, save_every_, check_replicas_every_, eval_every_;  // number of steps; 0: never
};

// Requests a save each so many minutes; 0: never.
class SaveTimer {
 public:
  explicit SaveTimer(double minutes) : minutes_(minutes) {}
  void restart() { since_ = Clock::now(); }
  bool is_over() const { return minutes_.count() > 0 && Clock::now() - since_ >= minutes_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double, std::ratio<60>> minutes_;
  Clock::time_point since_{};
};

// ------------------------------------------------------------ reported saves

// Lets a run save itself between steps: counts the time for which training pauses, reports what is in place,
// and ends the run if its folder is gone.
class ReportedSaves {
 public:
  // `in_place` is called for each checkpoint that has been reported.
  using InPlace = std::function<void(const std::filesystem::path& checkpoint)>;
  ReportedSaves(Trainer& trainer, Observers& observers, InPlace in_place)
      : trainer_(trainer), observers_(observers), in_place_(std::move(in_place)) {}

  // Must be called on the first rank once the folder is the run's: from then on it must stay.
  void watch_folder() { folder_.emplace(trainer_.folder()); }
  // Finds what would stop saves, before the first step.
  void try_out();

  void begin();
  // Waits until the save that was begun last is in place, if one was.
  void finish();
  void report();

  // Returns the step of the last save; -1: there was none.
  std::int64_t begun() const { return begun_; }
  // Returns the seconds for which training paused since the last call.
  double take_seconds() { return time_.take(); }

 private:
  void report_saved();
  template <class Body>
  void in_folder(Body&& body);

  Trainer& trainer_;
  Observers& observers_;
  InPlace in_place_;
  std::int64_t begun_ = -1;
  std::optional<FolderInPlace> folder_;  // set on the first rank
  StandStillTime time_;
};

// Runs body, and ends the run if its folder is gone: without it a save goes nowhere, or into another one of
// that name.
template <class Body>
void ReportedSaves::in_folder(Body&& body) {
  try {
    body();
  } catch (const Error&) {
    if (folder_) folder_->check();
    throw;
  }
}

void ReportedSaves::try_out() {
  in_folder([&] { trainer_.try_save(); });
}

void ReportedSaves::begin() {
  finish();  // a save that is not reported before the next begins would never be
  time_.count([&] {
    if (folder_) folder_->check();
    in_folder([&] { trainer_.begin_save(); });
    begun_ = trainer_.progress().step;
  });
}

void ReportedSaves::finish() {
  if (begun_ < 0) return;
  time_.count([&] {
    in_folder([&] {
      trainer_.finish_save();
      report_saved();
    });
  });
}

void ReportedSaves::report() {
  in_folder([&] { report_saved(); });
}

void ReportedSaves::report_saved() {
  const auto path = trainer_.saved();
  if (!path) return;
  observers_.event(EventKind::saved, path->string());
  in_place_(*path);
}

FlushedWarning flushed_warning(const Program& program) {
  const std::optional<QuantizationReport>& report = program.requests().quantization;
  return report ? FlushedWarning(report->asked_by, report->bound) : FlushedWarning("", 1);
}

class Run {
 public:
  Run(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command, Membership membership)
      : assembly_(assembly),
        recipe_(assembly.recipe()),
        observers_(recipe_, plugins, assembly.rank()),
        trainer_(assembly, plugins, std::move(membership)),
        saves_(trainer_, observers_, [this](const std::filesystem::path& path) { keep_if_best(path); }),
        plugins_(plugins),
        resume_command_(resume_command),
        schedule_(recipe_, alone()),
        groups_(LossGroups::of(recipe_, plugins)),
        clipped_(recipe_.number("optimizer.clip")),
        flushed_(flushed_warning(assembly.program())),
        save_timer_(assembly.rank() == 0 ? recipe_.number("run.save_minutes") : 0) {}

  int go() {
    try {
      return run();
    } catch (const Error& error) {
      report_failure(observers_, error);
      throw;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  int run() {
    stop_.emplace();
    announce();
    best_.emplace(recipe_, recipe_.text("run.resume").empty() ? std::nullopt : read_best(trainer_.folder()),
                  trainer_.progress().step);
    observers_.raise_failure();
    while (trainer_.progress().step < schedule_.steps()) {
      start_steps();
      StepRequests requests = finish_step();
      // Steps that already run are finished, here as on the other ranks.
      while ((requests.stop || requests.save) && trainer_.running() > 0) requests.stop |= finish_step().stop;
      if (requests.stop) return stopped();
      const std::int64_t step = trainer_.progress().step;
      if (schedule_.compares_after(step)) compare();
      if (schedule_.evaluates_after(step)) evaluate();
      if (requests.save || schedule_.saves_after(step) || best_->keeps(step)) save();
      if (best_->is_over()) {
        observers_.event(EventKind::note, ended_early_text(trainer_, *best_->best()));
        break;
      }
    }
    if (schedule_.evaluates() && evaluated_ != trainer_.progress().step) evaluate();
    const std::int64_t last = trainer_.progress().step;
    if ((recipe_.flag("run.save_at_end") || best_->keeps(last)) && saves_.begun() != last) save();
    saves_.finish();
    observers_.finish(trainer_.memory_of_ranks(), saves_.take_seconds());
    observers_.raise_failure();
    return 0;
  }

  bool wants_to_stop() const { return StopSignal::received() != 0 || observers_.have_failed(); }

  void announce() {
    begin_ = Clock::now();
    save_timer_.restart();
    if (assembly_.rank() == 0) claim_folder();
    trainer_.make_room_for_saves();
    if (saves(recipe_)) saves_.try_out();
  }

  void claim_folder() {
    trainer_.claim_folder();
    saves_.watch_folder();
    put_text_file(trainer_.folder() / "recipe.toml", recipe_.resolved_toml());
    put_text_file(trainer_.folder() / "plugins.json", plugin_record(plugins_) + "\n");
    report_start(observers_, trainer_);
  }

  bool alone() const { return assembly_.mesh().world() == 1; }

  // Starts the next step, and those behind it as well if nothing is to happen between them: so no queue waits
  // for the host. All ranks must come to the same.
  void start_steps() {
    if (trainer_.running() == 0) {
      last_ = Clock::now();
      trainer_.start(wants_to_stop(), save_timer_.is_over());
    }
    while (trainer_.can_start() && schedule_.goes_on_after(trainer_.progress().step + trainer_.running()) &&
           !(alone() && wants_to_stop()))
      start_behind();
  }

  // Starts a step behind another. Without its data, say, a step cannot be started; the one before it is
  // finished all the same.
  void start_behind() {
    try {
      trainer_.start(wants_to_stop(), save_timer_.is_over());
    } catch (const Error&) {
      finish_step();
      throw;
    }
  }

  // Finishes a step, and returns whether the run is to stop or to save here. A single rank stops at once;
  // many agree in the step they run together.
  StepRequests finish_step() {
    const StepResult result = trainer_.finish();
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> took = now - std::exchange(last_, now);
    clipped_.take(result.grad_norm);
    StepReport report(trainer_, result, groups_, clipped_, took.count());
    report.info.elapsed = std::chrono::duration<double>(now - begin_).count();
    report.info.save_seconds = saves_.take_seconds();
    report.info.compare_seconds = compare_time_.take();
    observers_.step(report.info);
    if (trainer_.global() != result.sequences && trainer_.progress().step < schedule_.steps())
      observers_.event(EventKind::note, other_batch_text(trainer_));
    if (const std::string said = flushed_.text(report.info.step, result.tallies); !said.empty())
      observers_.event(EventKind::warning, said);
    saves_.report();
    if (!result.kept) non_finite(result);
    return {result.stop || (alone() && wants_to_stop()), result.save};
  }

  // Handles a step that is not finite. The update was masked: parameters and optimizer state are those of the
  // step before, and if that stops the run, the step behind leaves them so. Or updates did not wait for the
  // norm: then nothing is saved.
  void non_finite(const StepResult& result) {
    const std::string what = non_finite_text(trainer_.progress().step, result);
    if (skips_non_finite(recipe_) && !result.scale_spent) {
      const double next = trainer_.progress().loss_scale.scale;
      observers_.event(EventKind::warning,
                       what + "; the update was skipped" + scale_text(result.loss_scale, next));
      return;
    }
    observers_.event(EventKind::failed, what);
    saves_.finish();
    throw_non_finite(trainer_.assembly().program(), trainer_.progress().step, result);
  }

  void compare() {
    if (compared_ == trainer_.progress().step) return;
    compare_time_.count([&] {
      try {
        trainer_.compare_replicas();
        compared_ = trainer_.progress().step;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::diverged) {
          observers_.event(EventKind::failed, error.what());
          saves_.finish();  // saves what was the same on all ranks
        }
        throw;
      }
    });
  }

  void evaluate() {
    if (trainer_.evaluation_moves_weights()) saves_.finish();  // which reads what changes places
    const Clock::time_point begin = Clock::now();
    const Evaluation evaluation = trainer_.evaluate();
    evaluated_ = trainer_.progress().step;
    const std::chrono::duration<double> took = Clock::now() - begin;
    report_evaluation(observers_, evaluated_, evaluation, took.count());
    best_->take(evaluated_, evaluation.whole.loss);
  }

  void save() {
    compare();
    saves_.begin();
    if (best_->keeps(trainer_.progress().step)) saved_best_ = best_->best();
    save_timer_.restart();
  }

  void keep_if_best(const std::filesystem::path& checkpoint) {
    if (saved_best_ && step_of(checkpoint) == saved_best_->step) set_best(trainer_.folder(), *saved_best_);
  }

  int stopped() {
    save();
    saves_.finish();
    observers_.event(EventKind::stopped, stopped_text(trainer_, resume_command_));
    observers_.finish(trainer_.memory_of_ranks(), saves_.take_seconds());
    observers_.raise_failure();
    // Another rank may have had the signal first.
    return 128 + (StopSignal::received() != 0 ? StopSignal::received() : SIGTERM);
  }

  const Assembly& assembly_;
  const Recipe& recipe_;
  Observers observers_;  // get what plugins log while the trainer is made
  Trainer trainer_;
  ReportedSaves saves_;
  std::optional<StopSignal> stop_;  // set once all ranks have met
  PluginHost& plugins_;
  std::string resume_command_;
  const RunSchedule schedule_;
  const LossGroups groups_;  // groups of targets with losses of their own
  ClippedSteps clipped_;
  FlushedWarning flushed_;
  SaveTimer save_timer_;            // the first rank's timer decides for all
  std::int64_t compared_ = -1;      // step of the last comparison of ranks
  std::int64_t evaluated_ = -1;     // step of the last evaluation
  Clock::time_point begin_, last_;  // begin of the run; time from which the step to finish next counts
  StandStillTime compare_time_;
  std::optional<BestSoFar> best_;             // set once the folder is the run's
  std::optional<BestCheckpoint> saved_best_;  // the best of those whose save has begun
};

}  // namespace

int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
          Membership membership) {
  return Run(assembly, plugins, resume_command, std::move(membership)).go();
}

}  // namespace prun
