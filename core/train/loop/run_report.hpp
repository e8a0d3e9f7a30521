// Reports a run and its steps to its observers.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/assemble/loss_groups.hpp"
#include "train/checkpoint/best_checkpoint.hpp"
#include "train/loop/observers.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

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

}  // namespace prun
