// Plugin kind `strategy`: rewrites the program in one phase. It knows nothing of the model.
//
// The phase, and what a strategy provides, requires and conflicts with, stand in the traits of its
// PRUN_PLUGIN line, so that they are checked before any of its code runs:
//   "phase=model; provides=squared-relu; conflicts=recompute"
// Phases in order: model (the forward program, before gradients are derived), shard, partition, state,
// memory, order.
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
