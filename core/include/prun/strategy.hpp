// SPDX-License-Identifier: Apache-2.0
// Plugin kind `strategy`: rewrites the program in one phase. It knows nothing of the model.
//
// What must be known before any of its code runs stands in the traits of its PRUN_PLUGIN line:
//   phase=shard         when it works; in order: model (the forward program, before gradients are derived),
//                       shard, partition, state, memory, order
//   conflicts=tensor    strategies that it cannot be combined with: names with commas between; * stands for
//                       any text, ? for any character
//   splits=batch        so batch.global counts for that many ranks; also model, and frees: docs/plugins.md
// Its axis is the mesh axis that its string option `axis` names: the recipe is refused where [mesh] lacks it,
// and an axis of several ranks must be some strategy's.
#pragma once

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void apply(ProgramRef program) = 0;
};

class StrategyInterface {
 public:
  virtual Status apply(const ProgramApi* api, void* program) noexcept = 0;

 protected:
  ~StrategyInterface() = default;
};

template <class Author>
class StrategyAdapter final : public StrategyInterface {
 public:
  explicit StrategyAdapter(const Options& options) : author_(options) {}
  Status apply(const ProgramApi* api, void* program) noexcept override {
    return guard([&] { static_cast<Strategy&>(author_).apply(ProgramRef(api, program)); });
  }

 private:
  Author author_;
};

}  // namespace prun
