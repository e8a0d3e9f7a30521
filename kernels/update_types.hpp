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

// Returns choice.template operator()<UpdateTypes<...>>() for a parameter, its master copy and its gradient,
// and states of that type; a default result where these do not go together. Shape is the op's ShapeOf.
template <class Shape, class Choice>
detail::UpdateChoice<Choice> choose_update(const Shape& s, DType state, Choice choice) {
  const OperandShape& master = s["master"];
  const DType parameter = s["parameter"].dtype, gradient = s["gradient"].dtype;
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

// Does the same for a parameter, its master copy and their average.
template <class Shape, class Choice>
detail::UpdateChoice<Choice> choose_average(const Shape& s, Choice choice) {
  const OperandShape& master = s["master"];
  const DType parameter = s["parameter"].dtype, average = s["average"].dtype;
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

// Does the same for a gradient and its state, with step and seed where it rounds by chance. What is chosen
// has no parameter and no master copy.
template <class Shape, class Choice>
detail::UpdateChoice<Choice> choose_momentum(const Shape& s, Choice choice) {
  const DType gradient = s["gradient"].dtype, state = s["m"].dtype;
  const auto is = [&](DType a, DType b) { return gradient == a && state == b; };
  const bool chance = s.has("step") && s.has("seed");
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
inline bool in_eight_bits(const OperandShape& codes, const OperandShape& scales) {
  return codes.present && codes.dtype == DType::u8 && scales.present && scales.dtype == DType::f32 &&
         scales.elements() * eight_bit_block == codes.elements();
}

// Returns the type in which an update without states would keep them.
inline DType state_type(const OperandShape& gradient) { return OpShape::statistics(gradient.dtype); }

// Says whether step and seed are there for an update that rounds by chance.
template <class Shape>
bool has_chance(const Shape& s, DType state) {
  const auto is_scalar = [](const OperandShape& x) { return x.present && x.dtype == DType::f64; };
  const bool chancy = state == DType::bf16 || (s["parameter"].dtype == DType::bf16 && !s.has("master"));
  return !chancy || (is_scalar(s["step"]) && is_scalar(s["seed"]));
}

// Checks what is stated of the parameter of an update that rounds by chance.
inline void check_updates(const KernelArgs& args) {
  if (args.update_count < 0)
    throw_error(
        ErrorCode::unsupported,
        "an update that rounds stochastically was given something that is no parameter; keep master and "
        "moments in fp32");
}

}  // namespace prun
