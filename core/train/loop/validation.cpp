#include "train/loop/validation.hpp"

namespace prun {

Validation::Validation(const ForwardParts& parts, Samples samples)
    : recipe_(parts.assembly.recipe()), evaluator_(parts, std::move(samples)) {
  if (recipe_.flag("eval.average")) averages_.emplace(parts.assembly, *parts.base_program);
}

// Averages go first: where the program gathers parameters, it leaves those behind that it has read last.
// Before the first update there is no average.
Evaluation Validation::run(std::int64_t updates) {
  const std::int64_t batches = recipe_.integer("eval.batches");
  Evaluation evaluation;
  if (averages_ && updates > 0) {
    averages_->put_in_place();
    evaluation.averaged = evaluator_.run(batches).loss;
    averages_->put_back();
  }
  evaluation.whole = evaluator_.run(batches);
  if (recipe_.flag("eval.by_set")) evaluation.sets = evaluator_.run_by_set(batches);
  return evaluation;
}

}  // namespace prun
