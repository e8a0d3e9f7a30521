// Lists the types that an update's operands may have, for kernels/cpu and kernels/cuda alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "prun/eight_bits.hpp"
#include "prun/op.hpp"

namespace prun {

// MasterCopy is void where there is none, std::uint16_t where it is the low half of floats whose rounding is
// the parameter (prun/split_master.hpp).
template <class T, class MasterCopy, class Sum, class Moment>
struct UpdateTypes {
  using Parameter = T;
  using Master = MasterCopy;
  using Gradient = Sum;
  using State = Moment;
  using C = std::conditional_t<std::is_same_v<Sum, double>, double, float>;  // is what it is computed in
  static constexpr bool has_master = !std::is_void_v<Master>;
  static constexpr bool split = std::is_same_v<Master, std::uint16_t>;
  static constexpr bool chancy_states = std::is_same_v<State, bf16>;
  static constexpr bool chancy_weights = std::is_same_v<Parameter, bf16> && !has_master;
};

namespace detail {

template <class Choice>
using UpdateChoice =
    decltype(std::declval<Choice>().template operator()<UpdateTypes<float, void, float, float>>());

// Where any operand is in double, all but the parameter are.
template <class T, class Choice>
UpdateChoice<Choice> choose_wide_update(const OperandShape& master, Choice choice) {
  constexpr bool narrow = sizeof(T) < sizeof(double);
  using Master = std::conditional_t<narrow, double, void>;
  if (narrow != master.present || (narrow && master.dtype != DType::f64)) return {};
  return choice.template operator()<UpdateTypes<T, Master, double, double>>();
}

template <class T, class Gradient, class State, class Choice>
UpdateChoice<Choice> choose_master(const OperandShape& master, Choice choice) {
  // In fp16 nothing rounds by chance, so there must be a master copy.
  if constexpr (!std::is_same_v<T, f16>)
    if (!master.present) return choice.template operator()<UpdateTypes<T, void, Gradient, State>>();
  if constexpr (is_half<T>)
    if (master.present && master.dtype == DType::f32)
      return choice.template operator()<UpdateTypes<T, float, Gradient, State>>();
  if constexpr (std::is_same_v<T, bf16>)
    if (master.present && master.dtype == DType::u16)
      return choice.template operator()<UpdateTypes<T, std::uint16_t, Gradient, State>>();
  return {};
}

template <class T, class Gradient, class Choice>
UpdateChoice<Choice> choose_states(const OperandShape& master, DType state, Choice choice) {
  if (state == DType::f32) return choose_master<T, Gradient, float>(master, choice);
  if (state == DType::bf16) return choose_master<T, Gradient, bf16>(master, choice);
  return {};
}

}  // namespace detail

// Returns choice.template operator()<UpdateTypes<...>>() for operands 0 to 2, a parameter, its master copy
// and its gradient, and states of that type; a default result where these do not go together.
template <class Choice>
detail::UpdateChoice<Choice> choose_update(const OpShape& s, DType state, Choice choice) {
  const OperandShape& master = s.operand[1];
  const DType parameter = s.operand[0].dtype, gradient = s.operand[2].dtype;
  if (gradient == DType::f64 && state == DType::f64) {
    if (parameter == DType::f64) return detail::choose_wide_update<double>(master, choice);
    if (parameter == DType::f32) return detail::choose_wide_update<float>(master, choice);
    if (parameter == DType::bf16) return detail::choose_wide_update<bf16>(master, choice);
    if (parameter == DType::f16) return detail::choose_wide_update<f16>(master, choice);
  }
  if (gradient == DType::f32) {
    if (parameter == DType::f32) return detail::choose_states<float, float>(master, state, choice);
    if (parameter == DType::bf16) return detail::choose_states<bf16, float>(master, state, choice);
    if (parameter == DType::f16) return detail::choose_states<f16, float>(master, state, choice);
  }
  if (gradient == DType::bf16 && parameter == DType::bf16)
    return detail::choose_states<bf16, bf16>(master, state, choice);
  return {};
}

// Does the same for operands 0 to 2 of `average_weights`, a parameter, its master copy and their average.
template <class Choice>
detail::UpdateChoice<Choice> choose_average(const OpShape& s, Choice choice) {
  const OperandShape& master = s.operand[1];
  const DType parameter = s.operand[0].dtype, average = s.operand[2].dtype;
  if (average == DType::f64) {
    if (parameter == DType::f64) return detail::choose_wide_update<double>(master, choice);
    if (parameter == DType::f32) return detail::choose_wide_update<float>(master, choice);
    if (parameter == DType::bf16) return detail::choose_wide_update<bf16>(master, choice);
    if (parameter == DType::f16) return detail::choose_wide_update<f16>(master, choice);
  }
  if (average == DType::f32) {
    if (parameter == DType::f32) return detail::choose_master<float, float, float>(master, choice);
    if (parameter == DType::bf16) return detail::choose_master<bf16, float, float>(master, choice);
    if (parameter == DType::f16) return detail::choose_master<f16, float, float>(master, choice);
  }
  return {};
}

// Does the same for operands 1 and 2 of `momentum`, a gradient and its state, with step and seed where it
// rounds by chance. It has no parameter and no master copy.
template <class Choice>
detail::UpdateChoice<Choice> choose_momentum(const OpShape& s, Choice choice) {
  const DType gradient = s.operand[1].dtype, state = s.operand[2].dtype;
  const auto is = [&](DType a, DType b) { return gradient == a && state == b; };
  const bool chance = s.operand[6].present && s.operand[7].present;
  if (is(DType::f64, DType::f64))
    return choice.template operator()<UpdateTypes<double, void, double, double>>();
  if (is(DType::f32, DType::f32)) return choice.template operator()<UpdateTypes<float, void, float, float>>();
  if (is(DType::bf16, DType::f32)) return choice.template operator()<UpdateTypes<float, void, bf16, float>>();
  if (chance && is(DType::f32, DType::bf16))
    return choice.template operator()<UpdateTypes<float, void, float, bf16>>();
  if (chance && is(DType::bf16, DType::bf16))
    return choice.template operator()<UpdateTypes<float, void, bf16, bf16>>();
  return {};
}

// Says whether a state and its scales have the types of moments in 8 bits, no block of which is cut.
inline bool in_eight_bits(const OpShape& s, int state, int scale) {
  const OperandShape &codes = s.operand[state], &scales = s.operand[scale];
  return codes.present && codes.dtype == DType::u8 && scales.present && scales.dtype == DType::f32 &&
         scales.elements() * eight_bit_block == codes.elements();
}

// Returns the type in which an update without states would keep them.
inline DType state_type(const OperandShape& gradient) { return OpShape::statistics(gradient.dtype); }

// Says whether step and seed, scalars at these places, are there for an update that rounds by chance.
inline bool has_chance(const OpShape& s, DType state, int step, int seed) {
  const auto scalar = [&](int i) { return s.operand[i].present && s.operand[i].dtype == DType::f64; };
  const bool chancy = state == DType::bf16 || (s.operand[0].dtype == DType::bf16 && !s.operand[1].present);
  return !chancy || (scalar(step) && scalar(seed));
}

// Checks what is stated of operand 0 of an update that rounds by chance.
inline void check_updates(const KernelArgs& args) {
  if (args.update_count < 0)
    throw_error(
        ErrorCode::unsupported,
        "an update that rounds stochastically was given something that is no parameter; keep master and "
        "moments in fp32");
}

}  // namespace prun
