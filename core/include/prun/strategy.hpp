// SPDX-License-Identifier: Apache-2.0
// Plugin kind `strategy`: rewrites the program, in one phase or in several. It knows nothing of the model.
//
// The traits of a strategy's PRUN_PLUGIN line say what the core must know before it runs the code:
//   phase=shard,state   when it works: see Phase
//   conflicts=tensor    strategies that it cannot be combined with: names with commas between; * stands for
//                       any text, ? for any character
//   splits=batch        so batch.global counts for that many ranks; also model, and frees: docs/plugins.md
// A strategy works along the mesh axis that its option `axis` names: a recipe whose [mesh] lacks it is
// refused, and so is an axis of several ranks that no strategy uses.
#pragma once

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

// Says when strategies work, in this order.
enum class Phase : std::uint8_t {
  model,        // the forward program as the model wrote it, before gradients are derived
  shard,        // with backward and update: dimensions are requested for axes of the mesh
  partition,    // the layer sequence is split into pipeline stages
  placed,       // every value has its placement, and the collectives that follow from it
  state,        // optimizer state and what else lasts from step to step
  collectives,  // sharded state is flat (ProgramApi::shard_state): its strategy writes the collectives
  memory,       // where values are stored, where functions run, and what is recomputed
  order,        // everything else exists
};
inline constexpr int phase_count = 8;

constexpr const char* name_of(Phase phase) {
  constexpr const char* names[] = {"model", "shard",       "partition", "placed",
                                   "state", "collectives", "memory",    "order"};
  return names[static_cast<int>(phase)];
}

struct ProblemsApi {
  std::uint64_t struct_size;
  void* problems;
  Status (*add)(void* problems, Text key, Text message);
};

// Collects what is wrong with a recipe: each message is shown with the line of its key.
class Problems {
 public:
  explicit Problems(const ProblemsApi& api) : api_(api) {}

  // `key` is one of the strategy's own options ("stage"), or any other key by its path ("batch.micro").
  void add(std::string_view key, const std::string& message) const {
    raise(api_.add(api_.problems, key, message));
  }

 private:
  ProblemsApi api_;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Edits the program. It is called once for each phase that the trait `phase` names. The core may write a
  // program several times, and makes a new object each time: keep in members what a later phase needs.
  virtual void apply(Phase phase, ProgramRef program) = 0;
  // Reports what cannot work, before any program is written. `recipe` returns any value of the recipe by its
  // path: recipe.integer("batch.micro").
  virtual void check(const Options& /*recipe*/, Problems /*problems*/) {}
};

class StrategyInterface {
 public:
  virtual Status apply(Phase phase, const ProgramApi* api, void* program) noexcept = 0;
  virtual Status check(const OptionsApi* recipe, const ProblemsApi* problems) noexcept = 0;

 protected:
  ~StrategyInterface() = default;
};

template <class Author>
class StrategyAdapter final : public StrategyInterface {
 public:
  explicit StrategyAdapter(const Options& options) : author_(options) {}
  Status apply(Phase phase, const ProgramApi* api, void* program) noexcept override {
    return guard([&] { static_cast<Strategy&>(author_).apply(phase, ProgramRef(api, program)); });
  }
  Status check(const OptionsApi* recipe, const ProblemsApi* problems) noexcept override {
    return guard([&] { static_cast<Strategy&>(author_).check(Options(*recipe), Problems(*problems)); });
  }

 private:
  Author author_;
};

}  // namespace prun
