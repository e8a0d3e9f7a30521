#include "train/loop/training_run.hpp"
#include "train/assemble/loss_groups.hpp"
#include "train/assemble/recipe_checks.hpp"

#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "base/durable_file.hpp"
#include "program/flops.hpp"
#include "train/checkpoint/plugin_record.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/best_so_far.hpp"
#include "train/loop/non_finite.hpp"
#include "train/loop/observers.hpp"
#include "train/loop/reported_saves.hpp"
#include "train/loop/run_report.hpp"
#include "train/loop/run_schedule.hpp"
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
        saves_(trainer_, observers_, [this](const std::filesystem::path& path) { keep_if_best(path); }),
        plugins_(plugins),
        resume_command_(resume_command),
        schedule_(recipe_, alone()),
        groups_(LossGroups::of(recipe_, plugins)),
        clipped_(recipe_.number("optimizer.clip")),
        flushed_(recipe_.number("precision.flushed_bound")),
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
      StepWishes wishes = finish_step();
      // Steps that already run are finished, here as on the other ranks.
      while ((wishes.stop || wishes.save) && trainer_.running() > 0) wishes.stop |= finish_step().stop;
      if (wishes.stop) return stopped();
      const std::int64_t step = trainer_.progress().step;
      if (schedule_.compares_after(step)) compare();
      if (schedule_.evaluates_after(step)) evaluate();
      if (wishes.save || schedule_.saves_after(step) || best_->keeps(step)) save();
      if (best_->is_over()) {
        observers_.event(EventKind::note, ended_early_text(trainer_, *best_->best()));
        break;
      }
    }
    if (schedule_.evaluates() && evaluated_ != trainer_.progress().step) evaluate();
    if (recipe_.flag("run.save_at_end") && saves_.begun() != trainer_.progress().step) save();
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
  StepWishes finish_step() {
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
    if (trainer_.evaluates_averages()) saves_.finish();  // which reads what averages change places with
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
