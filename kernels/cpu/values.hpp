// Loads and stores values, and names the type they are computed in.
#pragma once

#include <type_traits>

#include "cpu/isa.hpp"
#include "prun/kernel.hpp"

namespace prun::cpu::PRUN_ISA {

// Is double for double, otherwise float.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
Compute<T> load(const T& from) {
  return static_cast<Compute<T>>(from);
}

// Returns the number of a position, which the host hands over as a double.
inline std::int64_t position_in(const Tensor& number) {
  return static_cast<std::int64_t>(*number.as<const double>());
}

// Says which position is at each place of a rank's part of the sequences: from the first on or, in another
// order, as operand `positions` says.
class Places {
 public:
  Places(std::int64_t first) : first_(first) {}
  Places(std::int64_t first, const Tensor& positions)
      : first_(first), positions_(positions.as<const std::int32_t>()) {}
  std::int64_t position(std::int64_t place) const { return positions_ ? positions_[place] : first_ + place; }

 private:
  std::int64_t first_;
  const std::int32_t* positions_ = nullptr;
};

// Rounds to T. 16-bit types are written as bits: assigning the struct would keep GCC from vectorising a loop.
template <class T, class Value>
void store(T& to, Value value) {
  if constexpr (is_half<T>)
    to.bits = T(static_cast<float>(value)).bits;
  else
    to = static_cast<T>(value);
}

// Adds to a stored value, and rounds the sum to its type.
template <class Sum, class Value>
void add_to(Sum& sum, Value value) {
  store(sum, load(sum) + static_cast<Compute<Sum>>(value));
}

}  // namespace prun::cpu::PRUN_ISA
