// There is one loop per type and reduction, written so that the compiler makes vector code of it.
#include "arithmetic.hpp"

namespace prun::ucx {
namespace {

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a > b || a != a ? a : b;
    else
      return a > b ? a : b;
  }
};

template <class Operation, class T>
T one(T a, T b) {
  if constexpr (is_half<T>)
    return T(Operation::of(static_cast<float>(a), static_cast<float>(b)));
  else
    return Operation::of(a, b);
}

template <class Operation, class T>
void all(const void* first, const void* second, void* to, std::int64_t elements) {
  const T* a = static_cast<const T*>(first);
  const T* b = static_cast<const T*>(second);
  T* out = static_cast<T*>(to);
  // Operands overlap element by element or not at all.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elements; ++i) out[i] = one<Operation, T>(a[i], b[i]);
}

template <class Operation>
void with(DType dtype, const void* first, const void* second, void* to, std::int64_t elements) {
  switch (dtype) {
    case DType::f64: return all<Operation, double>(first, second, to, elements);
    case DType::f32: return all<Operation, float>(first, second, to, elements);
    case DType::bf16: return all<Operation, bf16>(first, second, to, elements);
    case DType::f16: return all<Operation, f16>(first, second, to, elements);
    case DType::i32: return all<Operation, std::int32_t>(first, second, to, elements);
    case DType::i64: return all<Operation, std::int64_t>(first, second, to, elements);
    case DType::u8: return all<Operation, std::uint8_t>(first, second, to, elements);
    case DType::u16: return all<Operation, std::uint16_t>(first, second, to, elements);
  }
}

}  // namespace

void combine(DType dtype, Reduction reduction, const void* first, const void* second, void* to,
             std::int64_t elements) {
  if (reduction == Reduction::sum)
    with<Sum>(dtype, first, second, to, elements);
  else
    with<Max>(dtype, first, second, to, elements);
}

}  // namespace prun::ucx
