// SPDX-License-Identifier: Apache-2.0
// A plugin of kind `optimizer` declares the state that a parameter needs and writes the ops that update it.
//
// With the trait `elementwise=yes` it treats all elements alike: if state is sharded, the core has it write
// the update of a flat range of many parameters. With `whole=tensors` or `whole=matrices` it writes ops on
// whole parameters: operands that an op's rule needs unsharded (prun/op.hpp) are gathered for it, and ops
// that treat all elements alike are merged by the core into ops on flat ranges.
#pragma once

#include <optional>

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

// Describes one parameter's update. Runtime values are scalars in fp64.
struct UpdateContext {
  Id parameter = none;
  // Master weights in precision.master, or none if the parameter itself has that type. A u16 holds the low
  // half of the float whose bf16 rounding the parameter is (prun/split_master.hpp).
  Id master = none;
  // The mean over the step's targets. If the recipe scales the loss, it is scaled too: multiplied by `clip`,
  // and by nothing else, it becomes the gradient.
  Id gradient = none;
  Array<Id> states;  // states in the order of states()
  Id lr = none;
  Id step = none;  // number of this update: 1, 2, ...
  Id clip = none;  // factor for the gradient: that of clipping, divided by the loss scale
  Id keep = none;  // 0 if the update must be skipped
  double lr_scale = 1;
  double weight_decay = -1;  // decay of the parameter's group; negative: the optimizer's own
  bool decay = false;        // whether weight decay applies to this parameter
  Id seed = none;            // seed of stochastic rounding; none where nothing is kept in bf16
  // Scales of each state that is kept in 8 bits, by blocks of eight_bit_block elements (prun/eight_bits.hpp);
  // none for other states.
  Array<Id> scales;
};

// Describes a parameter as its model wrote it.
struct ParameterShape {
  Array<Dim> dims;
  Matrices matrices;
  DType sums = DType::f32;  // type in which its gradient is summed
};

// Describes a tensor that is kept for a parameter.
struct StateSpec {
  Text name;
  bool shaped = false;  // has dimensions `dims`, rather than the parameter's
  bool typed = false;   // has type `dtype`, rather than precision.moments
  DType dtype = DType::f32;
  Array<Dim> dims;
};

struct State {
  std::string name;
  // The state's dimensions; those that the parameter has too are sharded as in the parameter. Without them
  // the state has the parameter's dimensions.
  std::optional<std::vector<Dim>> dims;
  std::optional<DType> dtype;  // without one: precision.moments
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names the tensors that it keeps for each parameter, shaped like it, in precision.moments.
  virtual std::vector<std::string> states() { return {}; }
  // Lists the states of one parameter with their shapes and types, for optimizers that update whole
  // tensors.
  virtual std::vector<State> states_of(const ParameterShape&) {
    std::vector<State> list;
    for (std::string& name : states()) list.push_back({std::move(name), {}, {}});
    return list;
  }
  // Appends the update of one parameter to the segment's `update` function.
  virtual void update(Segment segment, const UpdateContext& context) = 0;
};

class OptimizerInterface {
 public:
  // The names are valid until the next call.
  virtual Status states(Array<Text>* names) noexcept = 0;
  virtual Status update(const ProgramApi* api, void* program, Id segment,
                        const UpdateContext& context) noexcept = 0;
  // The specs are valid until the next call.
  virtual Status states_of(const ParameterShape& parameter, Array<StateSpec>* states) noexcept = 0;

 protected:
  ~OptimizerInterface() = default;
};

template <class Author>
class OptimizerAdapter final : public OptimizerInterface {
 public:
  explicit OptimizerAdapter(const Options& options) : author_(options) {}
  Status states(Array<Text>* names) noexcept override {
    return guard([&] {
      names_ = static_cast<Optimizer&>(author_).states();
      texts_.assign(names_.begin(), names_.end());
      *names = {texts_.data(), texts_.size()};
    });
  }
  Status update(const ProgramApi* api, void* program, Id segment,
                const UpdateContext& context) noexcept override {
    return guard([&] {
      static_cast<Optimizer&>(author_).update(Segment(ProgramRef(api, program), segment), context);
    });
  }

  Status states_of(const ParameterShape& parameter, Array<StateSpec>* states) noexcept override {
    return guard([&] {
      states_ = static_cast<Optimizer&>(author_).states_of(parameter);
      specs_.clear();
      for (const State& state : states_) {
        StateSpec spec{state.name,
                       state.dims.has_value(),
                       state.dtype.has_value(),
                       state.dtype.value_or(DType::f32),
                       {}};
        if (state.dims) spec.dims = {state.dims->data(), state.dims->size()};
        specs_.push_back(spec);
      }
      *states = {specs_.data(), specs_.size()};
    });
  }

 private:
  Author author_;
  std::vector<std::string> names_;
  std::vector<Text> texts_;
  std::vector<State> states_;
  std::vector<StateSpec> specs_;
};

}  // namespace prun
