// Writes a run as scalars for TensorBoard, under the names that people search for.
#pragma once

#include <optional>
#include <string>

#include "event_file.hpp"
#include "prun/observer.hpp"

namespace prun::tensorboard {

class TensorboardObserver final : public Observer {
 public:
  explicit TensorboardObserver(const Options& options);

  // All these throw storage when the file cannot be written.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void finish(const FinishInfo& info) override;

 private:
  void add(std::int64_t step, const Scalars& scalars);

  std::string path_;  // empty: tensorboard in the run's folder
  std::optional<EventFile> file_;
  FlopRates rates_;
  std::int64_t last_step_ = 0;
};

}  // namespace prun::tensorboard
