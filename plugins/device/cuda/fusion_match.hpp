// Recognizes launches that become one: by their ops, and by which operands are at one place.
#pragma once

#include "device_op.hpp"

namespace prun::cuda {

inline bool is(const Launch& launch, std::string_view op) { return launch.op.view() == op; }

inline const void* at(const Launch& launch, int operand) { return launch.args.operands[operand].data; }

// Says whether two launches are of these ops, in either order.
inline bool are(const Launch& a, const Launch& b, std::string_view one, std::string_view other) {
  return (is(a, one) && is(b, other)) || (is(a, other) && is(b, one));
}

}  // namespace prun::cuda
