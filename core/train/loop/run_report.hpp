// Reports a run and its steps to its observers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin/guarded_plugin.hpp"
#include "prun/error.hpp"
#include "prun/observer.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/loop/step_staging.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// ------------------------------------------------------------------- observers
// Calls the observers of a run.

// Returns the observer that keeps the log of a run whose recipe names none that does; it is empty if none is
// wanted.
std::string unnamed_log(const Recipe& recipe, PluginHost& plugins);

// Holds all observers of a run. One that fails is not called any more, and ends the run once that is saved: a
// log with holes is worse than none.
class Observers {
 public:
  Observers(const Recipe& recipe, PluginHost& plugins, std::int64_t rank) {
    if (rank != 0) return;  // the first rank speaks for all
    for (const RecipeSection& section : recipe.sections("observer"))
      list_.push_back(plugins.create<ObserverInterface>("observer", section));
    if (const std::string log = unnamed_log(recipe, plugins); !log.empty())
      list_.push_back(plugins.create<ObserverInterface>("observer", log, recipe));
    if (!list_.empty()) lines_ = std::make_unique<PluginLines>();
  }
  void start(const RunInfo& info) {
    tell([&](ObserverInterface& observer) { return observer.start(info); });
    pass_on_lines();
  }
  void step(const StepInfo& info) {
    pass_on_lines();
    tell([&](ObserverInterface& observer) { return observer.step(info); });
  }
  void evaluation(const EvaluationInfo& info) {
    pass_on_lines();
    tell([&](ObserverInterface& observer) { return observer.evaluation(info); });
  }
  void event(EventKind kind, const std::string& message) {
    tell([&](ObserverInterface& observer) { return observer.event(kind, message); });
  }
  void finish(const std::vector<RankMemory>& memory, double save_seconds) {
    pass_on_lines();
    FinishInfo info;
    info.memory = {memory.data(), memory.size()};
    info.save_seconds = save_seconds;
    tell([&](ObserverInterface& observer) { return observer.finish(info); });
  }

  bool have_failed() const { return failure_.has_value(); }
  // Throws the error of the first of them that failed.
  void raise_failure() const {
    if (failure_) throw *failure_;
  }

 private:
  template <class Tell>
  void tell(Tell&& tell_one) {
    std::erase_if(list_, [&](const std::shared_ptr<ObserverInterface>& observer) {
      try {
        raise(tell_one(*observer));
        return false;
      } catch (const Error& error) {
        if (!failure_) failure_ = error;
        return true;
      }
    });
  }

  // Passes on the lines that plugins have logged meanwhile.
  void pass_on_lines() {
    if (!lines_) return;
    for (const std::string& line : lines_->take()) event(EventKind::note, line);
  }

  std::vector<std::shared_ptr<ObserverInterface>> list_;
  std::unique_ptr<PluginLines> lines_;
  std::optional<Error> failure_;
};

// ------------------------------------------------------------------- run report

// Reports on the first rank which run it is, and notes on its start.
void report_start(Observers& observers, Trainer& trainer);

// Says so where the warm-up is as long as the run, so that the learning rate never reaches its peak; else
// nothing.
std::string long_warmup_text(const Recipe& recipe);

// Reports what ends the run here, for logs and their later readers. The launcher reports failures of other
// ranks, and divergence was reported as it was found.
void report_failure(Observers& observers, const Error& error);

// Reports an evaluation after this step.
void report_evaluation(Observers& observers, std::int64_t step, const Evaluation& evaluation, double seconds);

// Counts the steps of this process whose gradient norm was over optimizer.clip.
class ClippedSteps {
 public:
  explicit ClippedSteps(double clip) : clip_(clip) {}
  void take(double grad_norm) {
    ++steps_;
    clipped_ += grad_norm > clip_;
  }
  // Returns their share; nothing where the recipe does not clip.
  std::optional<double> share() const {
    if (clip_ <= 0 || steps_ == 0) return {};
    return static_cast<double>(clipped_) / static_cast<double>(steps_);
  }

 private:
  double clip_;
  std::int64_t steps_ = 0, clipped_ = 0;
};

// Reports a step that the trainer has finished. Other ranks' devices are assumed to draw what the first one's
// does: nothing is exchanged for it. It lives as long as the result, and what it points to as long as itself.
class StepReport {
 public:
  StepReport(const Trainer& trainer, const StepResult& result, const LossGroups& groups,
             const ClippedSteps& clipped, double seconds);
  StepReport(const StepReport&) = delete;
  StepReport& operator=(const StepReport&) = delete;

  StepInfo info;

 private:
  const std::vector<LossGroups::Part> parts_;
  const std::optional<double> clipped_share_;
  std::vector<TallyInfo> tallies_;
  std::vector<EvaluatedLoss> losses_;
};

// These texts report a step whose batch has another size than the one before it; where the run stopped, with
// the command that goes on; and why it ends early, with its best evaluation.
std::string other_batch_text(const Trainer& trainer);
std::string stopped_text(const Trainer& trainer, const std::string& resume_command);
std::string ended_early_text(const Trainer& trainer, const BestCheckpoint& best);

// Counts time for which training paused and which was not reported.
class StandStillTime {
 public:
  // Calls body(), while no step runs.
  template <class Body>
  void count(Body&& body) {
    const Counted counted{total_};
    body();
  }
  // Returns the seconds that were counted since the last call.
  double take() { return std::chrono::duration<double>(std::exchange(total_, {})).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Counted {
    Clock::duration& total;
    Clock::time_point begin = Clock::now();
    ~Counted() { total += Clock::now() - begin; }
  };

  Clock::duration total_{};
};

// ------------------------------------------------------------------- non finite
// Says why the update of a step was masked, and ends a run because of it.

// Says what the step needed more of than was planned for, by the layer that needed most; empty if it did not.
std::string beyond_text(std::int64_t step, const StepResult& result);
// Says that the update of a step was masked, and why.
std::string non_finite_text(std::int64_t step, const StepResult& result);

// Says what that does to the scale of the loss; the text is empty if there is none.
std::string scale_text(double before, double next);

// Ends the run: the scale of the loss cannot fall, the step went beyond what was planned, or neither.
[[noreturn]] void throw_non_finite(const Program& program, std::int64_t step, const StepResult& result);

}  // namespace prun
