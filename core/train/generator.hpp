// A program whose head gives logits, run over one text again and again.
#pragma once

#include <span>
#include <vector>

#include "execute/executor.hpp"
#include "program/step.hpp"
#include "train/evaluator.hpp"

namespace prun {

class Generator {
 public:
  explicit Generator(const ForwardParts& parts);

  const PlanMemory& memory() const { return executor_.memory(); }
  // Of what follows the tokens, of which the last ones count, as many as the program's sequences have; empty
  // on a rank that another stage comes after. Every rank calls it.
  std::vector<double> logits(std::span<const std::int32_t> tokens);

 private:
  void stage(std::span<const std::int32_t> tokens);
  std::vector<double> read() const;

  const Assembly& assembly_;
  const Program& program_;
  const bool has_head_;
  Executor executor_;
  const StagedValues staged_;
  std::int64_t steps_ = 0;  // of this process, which alternate the staging sides
};

}  // namespace prun
