// SPDX-License-Identifier: Apache-2.0
// Plugin kind `optimizer`: the state a parameter needs and the ops that update it.
#pragma once

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

// One parameter's update. Runtime values are scalars in fp64.
struct UpdateContext {
  Id parameter = none;
  // Copy in precision.master, or none where the parameter itself has that type. In u16: the low half of what
  // the parameter, in bf16, is the rounding of (prun/split_master.hpp).
  Id master = none;
  Id gradient = none;  // sum over the step's targets, divided by their number
  Array<Id> states;    // in the order of states()
  Id lr = none;
  Id step = none;  // updates done before this one, this one included: 1, 2, ...
  Id clip = none;  // factor for the gradient
  Id keep = none;  // 0: leave everything as it is
  double lr_scale = 1;
  double weight_decay = -1;  // of the parameter's group; negative: the optimizer's own
  bool decay = false;        // whether weight decay applies to this parameter
  Id seed = none;            // of what rounds stochastically; none where nothing is kept in bf16
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Names of the tensors it keeps per parameter, shaped like it, in precision.moments.
  virtual std::vector<std::string> states() = 0;
  // Appends to the segment's `update` function.
  virtual void update(Segment segment, const UpdateContext& context) = 0;
};

class OptimizerInterface {
 public:
  // Borrowed until the next call.
  virtual Status states(Array<Text>* names) noexcept = 0;
  virtual Status update(const ProgramApi* api, void* program, Id segment,
                        const UpdateContext& context) noexcept = 0;

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

 private:
  Author author_;
  std::vector<std::string> names_;
  std::vector<Text> texts_;
};

}  // namespace prun
