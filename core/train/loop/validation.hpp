// Evaluates during training, on data that is not trained on: in the memory of training and, if the recipe
// says so, with averages of the weights in their place as well.
#pragma once

#include <optional>

#include "train/loop/averaged_weights.hpp"
#include "train/loop/evaluator.hpp"

namespace prun {

class Validation {
 public:
  // `parts` are over the memory of training.
  Validation(const ForwardParts& parts, Samples samples);

  bool has_averages() const { return averages_.has_value(); }
  const Samples& samples() const { return evaluator_.samples(); }
  // Evaluates after so many updates. No step runs meanwhile and, if there are averages, no save either. Every
  // rank calls it.
  Evaluation run(std::int64_t updates);

 private:
  const Recipe& recipe_;
  Evaluator evaluator_;
  std::optional<AveragedWeights> averages_;
};

}  // namespace prun
