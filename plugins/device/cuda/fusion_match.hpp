// Recognizes launches that become one: by their ops, and by which operands are at one place.
#pragma once

#include "device_op.hpp"
#include "prun/named_operands.hpp"

namespace prun::cuda {

template <class Op>
bool is(const Launch& launch) {
  return launch.op.view() == Op::kind;
}

// Returns an operand of a launch of this op, and where its bytes are.
template <class Op>
const Tensor& operand(const Launch& launch, OperandOf<Op> name) {
  return ArgsOf<Op>(launch.args)[name];
}
template <class Op>
const void* at(const Launch& launch, OperandOf<Op> name) {
  return operand<Op>(launch, name).data;
}

// Says whether two launches are of these ops, in either order.
template <class One, class Other>
bool are(const Launch& a, const Launch& b) {
  return (is<One>(a) && is<Other>(b)) || (is<Other>(a) && is<One>(b));
}

}  // namespace prun::cuda
