// SPDX-License-Identifier: Apache-2.0
// A plugin of kind `optimizer` states what a parameter needs beside itself and writes the ops that update it.
//
// One whose note says `elementwise=yes` treats all elements alike: where ranks keep state in parts, the core
// has it write the update of a flat range of many parameters. One that says `whole=tensors`, or
// `whole=matrices`, writes ops of whole parameters; what they need whole comes together for them, as their
// rules say (prun/op.hpp), and of ops that are alike for all elements the core makes ones of flat ranges.
#pragma once

#include <optional>

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

// Describes one parameter's update. Runtime values are scalars in fp64.
struct UpdateContext {
  Id parameter = none;
  // This is the copy in precision.master, or none where the parameter itself has that type. A u16 holds the
  // low half of the float whose rounding the parameter is in bf16 (prun/split_master.hpp).
  Id master = none;
  // This is the sum over the step's targets, divided by their number. Where the recipe scales the loss, the
  // sum is scaled too: it becomes the gradient once it is multiplied by `clip`, and by nothing else.
  Id gradient = none;
  Array<Id> states;  // states in the order of states()
  Id lr = none;
  Id step = none;  // number of this update: 1, 2, ...
  Id clip = none;  // factor for the gradient: what clipping leaves of it, over the scale of the loss
  Id keep = none;  // 0 if everything must stay as it is
  double lr_scale = 1;
  double weight_decay = -1;  // decay of the parameter's group; negative: the optimizer's own
  bool decay = false;        // whether weight decay applies to this parameter
  Id seed = none;            // seed of stochastic rounding; none where nothing is kept in bf16
  // Each state that is kept in 8 bits has its scales here, by blocks of eight_bit_block elements
  // (prun/eight_bits.hpp); others have none.
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
  // These are the state's own dimensions; those named as the parameter's are sharded as they are. Without
  // them the state has the parameter's dimensions.
  std::optional<std::vector<Dim>> dims;
  std::optional<DType> dtype;  // without one: precision.moments
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names the tensors that it keeps for each parameter, shaped like it, in precision.moments.
  virtual std::vector<std::string> states() { return {}; }
  // Lists the states of one parameter, with shapes and types of their own: this is for rules of whole
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
