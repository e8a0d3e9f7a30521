// Reports a run and its steps to its observers.
#pragma once

#include <chrono>
#include <utility>

#include "train/loop/observers.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// Reports on the first rank which run it is, and notes on its start.
void report_start(Observers& observers, const Trainer& trainer);

// Reports what ends the run here, for logs and their later readers. The launcher reports failures of other
// ranks, and divergence was reported as it was found.
void report_failure(Observers& observers, const Error& error);

// Returns losses that point into the evaluation.
std::vector<EvaluatedLoss> losses_of_sets(const Evaluation& evaluation);
// Returns the evaluation without its sets.
EvaluationInfo evaluation_info(std::int64_t step, const Evaluation& evaluation, double seconds);
// These report a step that the trainer has finished. Other ranks' devices are assumed to draw what the first
// one's does: nothing is exchanged for it. The info lives as long as the result. Names are those of the
// parts.
std::vector<EvaluatedLoss> losses_of(std::span<const LossGroups::Part> parts);
std::vector<TallyInfo> tallies_of(const StepResult& result);
StepInfo step_info(const Trainer& trainer, const StepResult& result, double seconds);

// These texts report a step whose batch has another size than the one before it, and where the run stopped,
// with the command that goes on.
std::string other_batch_text(const Trainer& trainer);
std::string stopped_text(const Trainer& trainer, const std::string& resume_command);
// Says what the step needed more of than was planned for, by the layer that needed most; empty if it did not.
std::string beyond_text(std::int64_t step, const StepResult& result);
// Says that the update of a step was masked, and why.
std::string non_finite_text(std::int64_t step, const StepResult& result);

// Says what that does to the scale of the loss; the text is empty if there is none.
std::string scale_text(double before, double next);

// These end the run because of that: the first one since the scale cannot fall.
[[noreturn]] void throw_scale_spent(const std::string& what, double scale);
[[noreturn]] void throw_diverged(const Program& program, const std::string& what);
// This ends the run since a step went beyond what was planned.
[[noreturn]] void throw_beyond(const Program& program, const std::string& what);

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
