// Runs a program whose head gives logits over a text that grows.
#pragma once

#include <span>
#include <vector>

#include "execute/executor.hpp"
#include "program/step.hpp"
#include "train/loop/evaluator.hpp"

namespace prun {

class Generator {
 public:
  explicit Generator(const ForwardParts& parts);

  const PlanMemory& memory() const { return executor_.memory(); }
  // Returns the logits of the token that follows. With whole sequences the last tokens count, as many as a
  // sequence has; position by position there may be no more than that, and the leading ones that the last
  // call had too are not computed again, unless an op keeps a state that cannot go back to them. The first
  // tokens are an encoder's, if the program has one: it runs again only if one of them differs. The result is
  // empty on a rank that another stage comes after. Every rank must call it.
  std::vector<double> logits(std::span<const std::int32_t> tokens);

 private:
  // `given` is what an encoder sees; `tokens` stand at `position` and behind it.
  void run(std::span<const std::int32_t> given, std::span<const std::int32_t> tokens, std::int64_t position);
  void stage(std::span<const std::int32_t> given, std::span<const std::int32_t> tokens,
             std::int64_t position);
  std::vector<double> read() const;

  const Assembly& assembly_;
  const Program& program_;
  const bool has_head_, forgets_;
  Executor executor_;
  const StagedValues staged_;
  const std::size_t before_head_;    // positions of an encoder, before those that the head has logits of
  std::int64_t steps_ = 0;           // counts those of this process, which alternate the staging sides
  std::size_t last_ = 0;             // the first position of the last run
  std::vector<std::int32_t> known_;  // lists, position by position, the tokens that have been computed
};

}  // namespace prun
