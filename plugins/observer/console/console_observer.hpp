// Shows a run to a person: facts first, then a line for each step, a summary last.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "prun/observer.hpp"
#include "screen.hpp"
#include "step_times.hpp"

namespace prun::console {

class ConsoleObserver final : public Observer {
 public:
  explicit ConsoleObserver(const Options& options);
  ConsoleObserver(std::int64_t every, const ScreenSettings& settings);

  void start(const RunInfo& info) override;
  // Prints a line for the first and the last step, for every `every`-th, and for each whose update was
  // skipped.
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  void header(const RunInfo& info);
  bool due(const StepInfo& info) const;
  void show(const StepInfo& info);
  void show(const Array<EvaluatedLoss>& losses);
  void draw_bar();
  std::string line_of(const StepInfo& info) const;
  std::string eta() const;
  void memory(const FinishInfo& info);
  bool has_mfu() const { return flops_per_token_ > 0 && peak_flops_ > 0; }

  std::int64_t every_;
  Screen screen_;
  StepTimes times_, token_times_;
  std::int64_t steps_ = 0, first_step_ = 1;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;
  std::int64_t seen_ = 0;
  double first_loss_ = 0;
  std::optional<StepInfo> last_;
  std::optional<double> exposed_share_;  // that of the step that was measured last
  std::optional<double> clipped_share_;  // share of steps whose norm was over optimizer.clip
  bool last_shown_ = false;
  double drawn_at_ = 0;  // StepInfo::elapsed when the bar was last drawn
  std::string outcome_ = "done";
};

}  // namespace prun::console
