#include "placement/at_rest.hpp"

#include <algorithm>
#include <map>

namespace prun {
namespace {

// Returns what ops of forward would rather split than the first request: values that stay lie as these ops
// use them.
std::vector<Name> preferred_by_forward(const AxisState& axis) {
  const Program& program = axis.program();
  std::vector<Name> list;
  for (Id segment = 0; axis.splits().size() > 1 && segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::forward)) {
      OpShape shape = program.shape(program.op(id));
      raise(program.op(id).def->rule(&shape));
      for (const Name& dim : shape.preferred)
        if (!dim.empty()) list.push_back(dim);
    }
  return list;
}

// Returns the requested splits; those of dimensions that forward's ops prefer come first.
std::vector<Split> by_preference(const AxisState& axis) {
  std::vector<Split> order = axis.splits();
  const std::vector<Name> first = preferred_by_forward(axis);
  std::stable_partition(order.begin(), order.end(), [&](const Split& split) {
    return std::find(first.begin(), first.end(), split.dim) != first.end();
  });
  return order;
}

// Returns a placement sharded on the first dimension of `order` that the value has. A microbatch's inputs
// come in parts only if their dimension is the first that was requested everywhere: what needs weights in
// parts may need inputs whole.
AxisPlacement resting(const AxisState& axis, const Value& value, const std::vector<Split>& order) {
  const bool input = value.role == Role::input || value.role == Role::staging;
  for (const Split& split : input ? axis.splits() : order) {
    if (split.scope == SplitScope::ops || (input && split.scope != SplitScope::everywhere)) continue;
    if (has_dim(value, split.dim)) return AxisPlacement::sharded(split.dim);
    if (input) break;
  }
  return AxisPlacement::replicated();
}

bool counts_over(const AxisState& axis, const Value& value) {
  const auto first = std::find_if(axis.splits().begin(), axis.splits().end(),
                                  [](const Split& split) { return split.scope == SplitScope::everywhere; });
  return std::any_of(value.counted.begin(), value.counted.end(), [&](const Name& name) {
    return name == Name("*") || (first != axis.splits().end() && first->dim == name);
  });
}

}  // namespace

void place_what_stays(AxisState& axis) {
  const Program& program = axis.program();
  const std::vector<Split> order = by_preference(axis);
  std::map<Id, Id> parameters;  // parameters of such state
  for (Id id = 0; id < program.value_count(); ++id)
    for (const Id state : program.value(id).states)
      if (program.value(state).own_shape) parameters[state] = id;
  for (Id id = 0; id < program.value_count(); ++id) {
    const Value& value = program.value(id);
    if (value.role == Role::activation || value.role == Role::runtime) continue;
    const auto parameter = parameters.find(id);
    AxisPlacement placement =
        resting(axis, parameter == parameters.end() ? value : program.value(parameter->second), order);
    if (placement.is_sharded() && !has_dim(value, placement.dim)) placement = AxisPlacement::replicated();
    if (counts_over(axis, value)) placement = AxisPlacement::partial();
    axis.settle(id, placement);
  }
}

}  // namespace prun
