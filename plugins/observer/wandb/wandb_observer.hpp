// Writes a run as an offline run of Weights & Biases: nothing is sent, `wandb sync FOLDER` does that.
#pragma once

#include <optional>
#include <string>

#include "prun/observer.hpp"
#include "transaction_log.hpp"

namespace prun::wandb {

class WandbObserver final : public Observer {
 public:
  explicit WandbObserver(const Options& options);

  // All these throw storage when the file cannot be written.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  void add(std::int64_t step, const Scalars& scalars);
  void write_row();
  void end(bool failed);

  std::string path_, project_;
  std::optional<TransactionLog> log_;
  FlopRates rates_;
  double begin_ = 0;
  std::int64_t records_ = 0, step_ = 0;
  Scalars row_;  // holds those of step_: evaluations come behind the step, and a step has one row
};

}  // namespace prun::wandb
