// SPDX-License-Identifier: Apache-2.0
// Emits ops of backward with operands by name, from an op's gradient():
//
//   void SigmoidGate::gradient(GradientOf<SigmoidGate> g) {
//     input_gradient<SigmoidGate>(g, {"x"}, {{"x", g.arrived("y")}});
//     input_gradient<SigmoidGateGrad>(g, {"gate"}, {{"dy", g.arrived("y")}});
//   }
//
// An operand that the emitted op reads is given; otherwise it is the op's own of that name, such as `gate`
// here, or left out if there is none.
#pragma once

#include "prun/named_operands.hpp"

namespace prun {

template <class Emitted>
struct GivenOperand {
  OperandNumber<Emitted> name;
  Id value;
};
template <class Emitted>
using GivenOperands = std::initializer_list<GivenOperand<std::type_identity_t<Emitted>>>;

namespace detail {

// Returns the index of an operand of the op, or -1.
template <class Op>
constexpr int operand_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(Op::operands)); ++i)
    if (Op::operands[i].name == name) return i;
  return -1;
}

// Returns the index of the n-th operand that the op reads; there are reads_of<Op>.
template <class Op>
constexpr int read_operand(std::size_t n) {
  int i = 0;
  for (; Op::operands[i].access != Access::read || n-- > 0; ++i) {
  }
  return i;
}
template <class Op>
constexpr std::size_t reads_of = [] {
  std::size_t n = 0;
  for (const OperandDef& operand : Op::operands) n += operand.access == Access::read;
  return n;
}();

template <class Emitted, int index, class Op>
Id operand_for(const GradientOf<Op>& g, GivenOperands<Emitted> given) {
  for (const auto& one : given)
    if (one.name.index == index) return one.value;
  constexpr int own = operand_named<Op>(Emitted::operands[index].name);
  return own < 0 ? none : g.Gradient::operand(own);
}

// Calls emit(targets, operands).
template <class Emitted, class Op, std::size_t n, class Emit>
void emit_named(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n], GivenOperands<Emitted> given,
                const Emit& emit) {
  [&]<std::size_t... t, std::size_t... i>(std::index_sequence<t...>, std::index_sequence<i...>) {
    emit({targets[t].index...}, {operand_for<Emitted, read_operand<Emitted>(i)>(g, given)...});
  }
  (std::make_index_sequence<n>(), std::make_index_sequence<reads_of<Emitted>>());
}

}  // namespace detail

// Emits an op that computes the gradients of the listed operands: see Gradient::inputs().
template <class Emitted, class Op, std::size_t n>
void input_gradient(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n], GivenOperands<Emitted> given,
                    std::initializer_list<AttrValue> attrs = {}) {
  detail::emit_named<Emitted>(g, targets, given,
                              [&](std::initializer_list<int> of, std::initializer_list<Id> operands) {
                                g.Gradient::inputs(of, Emitted::kind, operands, attrs);
                              });
}

// Emits an op that adds to the accumulators of the listed operands: see Gradient::weight().
template <class Emitted, class Op, std::size_t n>
void weight_gradient(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n], GivenOperands<Emitted> given,
                     std::initializer_list<AttrValue> attrs = {}) {
  detail::emit_named<Emitted>(g, targets, given,
                              [&](std::initializer_list<int> of, std::initializer_list<Id> operands) {
                                g.Gradient::weight(of, Emitted::kind, operands, attrs);
                              });
}

}  // namespace prun
