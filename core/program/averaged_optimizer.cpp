#include "program/averaged_optimizer.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"

namespace prun {

Status AveragedOptimizer::states(Array<Text>* names) noexcept {
  return guard([&] {
    Array<Text> own;
    raise(optimizer_->states(&own));
    names_.assign(own.begin(), own.end());
    names_.emplace_back(average_state);
    *names = {names_.data(), names_.size()};
  });
}

// The average has the precision of sums, whatever type moments have: a bf16 would not move by a thousandth of
// the way.
Status AveragedOptimizer::states_of(const ParameterShape& parameter, Array<StateSpec>* states) noexcept {
  return guard([&] {
    Array<StateSpec> own;
    raise(optimizer_->states_of(parameter, &own));
    specs_.assign(own.begin(), own.end());
    specs_.push_back({average_state, false, true, parameter.sums, {}});
    *states = {specs_.data(), specs_.size()};
  });
}

Status AveragedOptimizer::update(const ProgramApi* api, void* program, Id segment,
                                 const UpdateContext& context) noexcept {
  return guard([&] {
    PRUN_CHECK(context.states.size > 0, "an average that no parameter has");
    UpdateContext own = context;
    own.states.size = context.states.size - 1;
    own.scales.size = std::min(context.scales.size, own.states.size);
    raise(optimizer_->update(api, program, segment, own));
    Segment(ProgramRef(api, program), segment)
        .insert(
            FunctionKind::update, none, base_ops::average_weights,
            {context.parameter, context.master, context.states[own.states.size], context.step, context.keep},
            0, {{"decay", decay_}});
  });
}

}  // namespace prun
