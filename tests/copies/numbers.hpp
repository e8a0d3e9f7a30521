// Numbers of every type in bytes, and what ranks hold.
#pragma once

#include <cstring>
#include <vector>

#include "prun/types.hpp"

namespace prun::test {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& bytes, std::int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
}

inline void set(Bytes& bytes, DType type, std::int64_t i, double x) {
  switch (type) {
    case DType::f64: return put(bytes, i, x);
    case DType::f32: return put(bytes, i, static_cast<float>(x));
    case DType::bf16: return put(bytes, i, bf16(static_cast<float>(x)));
    case DType::f16: return put(bytes, i, f16(static_cast<float>(x)));
    case DType::i32: return put(bytes, i, static_cast<std::int32_t>(x));
    case DType::i64: return put(bytes, i, static_cast<std::int64_t>(x));
    case DType::u8: return put(bytes, i, static_cast<std::uint8_t>(x));
    case DType::u16: return put(bytes, i, static_cast<std::uint16_t>(x));
  }
}

// Returns what a rank holds: thirds are no numbers of any type, so sums are rounded, and their order shows.
inline double number_of(std::int32_t rank, std::int64_t i, DType type) {
  const auto whole = static_cast<double>((rank * 37 + i * 11 + i / 13) % 101);
  Bytes one(8);
  set(one, type, 0, is_float(type) ? (whole - 50) / 3 : whole);
  double x = 0;
  switch (type) {
    case DType::f64: std::memcpy(&x, one.data(), 8); return x;
    case DType::f32: {
      float value = 0;
      std::memcpy(&value, one.data(), 4);
      return static_cast<double>(value);
    }
    case DType::bf16: {
      bf16 value;
      std::memcpy(&value, one.data(), 2);
      return static_cast<double>(static_cast<float>(value));
    }
    case DType::f16: {
      f16 value;
      std::memcpy(&value, one.data(), 2);
      return static_cast<double>(static_cast<float>(value));
    }
    default: return whole;
  }
}

}  // namespace prun::test
