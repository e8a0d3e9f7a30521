// Names keys and values of attention's ops: those of some positions have them of all positions.
#pragma once

#include <type_traits>

#include "prun/ops/attention.hpp"

namespace prun {

template <class Op>
constexpr bool takes_all_keys =
    std::is_same_v<Op, ops::AttentionAcross> || std::is_same_v<Op, ops::AttentionAcrossGrad>;

template <class Op>
consteval OperandNumber<Op> keys_of() {
  if constexpr (takes_all_keys<Op>)
    return "all_k";
  else
    return "k";
}

template <class Op>
consteval OperandNumber<Op> values_of() {
  if constexpr (takes_all_keys<Op>)
    return "all_v";
  else
    return "v";
}

template <class Op>
consteval OperandNumber<Op> key_gradients_of() {
  if constexpr (takes_all_keys<Op>)
    return "all_dk";
  else
    return "dk";
}

template <class Op>
consteval OperandNumber<Op> value_gradients_of() {
  if constexpr (takes_all_keys<Op>)
    return "all_dv";
  else
    return "dv";
}

}  // namespace prun
