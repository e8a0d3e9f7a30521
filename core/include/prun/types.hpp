// SPDX-License-Identifier: Apache-2.0
// Element types, names and dimensions: the small values that cross the plugin ABI by copy.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "prun/error.hpp"

namespace prun {

enum class DType : std::uint8_t { f64 = 0, f32 = 1, bf16 = 2, i32 = 3, i64 = 4, u8 = 5, u16 = 6, f16 = 7 };

constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

// Says whether ops compute with values of the type, rather than use them as indices or codes.
constexpr bool is_float(DType t) {
  return t == DType::f64 || t == DType::f32 || t == DType::bf16 || t == DType::f16;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f64: return "fp64";
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::u16: return "u16";
  }
  return "?";
}

// This type is for storage only: arithmetic happens in float. It rounds to nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u : rounded);
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(bf16) == 2);

// IEEE's binary16 is for storage only as well. It rounds to nearest even: from 65520 on to infinity, below
// 2^-14 in steps of 2^-24; NaN stays NaN. It has no branches, so that loops over many are vectorised.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit f16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = word & 0x7fffffffu;
    const std::uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    // In the sum with 0.5 the last bit stands for 2^-24: the addition rounds.
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - (126u << 23);
    const std::uint32_t finite = size < 113u << 23 ? small : normal;
    const std::uint32_t special = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x3ffu) : 0x7c00u;
    bits = static_cast<std::uint16_t>((word >> 16 & 0x8000u) | (size < 143u << 23 ? finite : special));
  }
  operator float() const {
    const std::uint32_t size = bits & 0x7fffu, shifted = size << 13;
    // Below 2^-14 the digits are added to those of 2^-14, which is subtracted again.
    const float small = std::bit_cast<float>(shifted + (113u << 23)) - std::bit_cast<float>(113u << 23);
    const std::uint32_t normal = shifted + ((size < 0x7c00u ? 112u : 224u) << 23);
    const std::uint32_t number = size < 0x400u ? std::bit_cast<std::uint32_t>(small) : normal;
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x8000u) << 16 | number);
  }
};
static_assert(sizeof(f16) == 2);

// The type is stored in two bytes, and computed with as a float.
template <class T>
inline constexpr bool is_half = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return DType::u16;
  else
    return DType::i64;
}

// Says where a plan keeps bytes: in memory of one of a rank's devices, or outside it.
enum class Space : std::uint8_t {
  device,  // the device's own memory: its kernels and copies reach it
  pinned,  // host memory that the kernels and copies of all devices of that kind reach, and those of the host
  host,    // any host memory: only kernels of devices whose own memory is the host's reach it
  disk,    // outside memory: only copies of the device itself, a tier, reach it
};

constexpr const char* name_of(Space space) {
  constexpr const char* names[] = {"device memory", "pinned host memory", "host memory", "disk"};
  return names[static_cast<int>(space)];
}

// Names a space of a device of the rank: device 0 is the recipe's.
struct MemoryPlace {
  std::int32_t device = 0;
  Space space = Space::device;
  friend constexpr bool operator==(const MemoryPlace&, const MemoryPlace&) = default;
};

// Holds a short name by value: of a dimension, an axis, a value's role. Longer text is an error and is never
// truncated.
struct Name {
  char text[24] = {};

  constexpr Name() = default;
  constexpr Name(std::string_view s) {
    if (s.size() >= sizeof text)
      throw_error(ErrorCode::bad_input, "name '", s, "' is longer than 23 letters");
    for (std::size_t i = 0; i < s.size(); ++i) text[i] = s[i];
  }
  constexpr Name(const char* s) : Name(std::string_view(s)) {}
  constexpr std::string_view view() const { return std::string_view(text); }
  constexpr bool empty() const { return text[0] == 0; }
  friend constexpr bool operator==(const Name& a, const Name& b) { return a.view() == b.view(); }
};

// Describes one named dimension. Names within a value differ from each other: placement refers to them.
struct Dim {
  Name name;
  std::int64_t extent = 0;
  friend constexpr bool operator==(const Dim&, const Dim&) = default;
};

inline constexpr int max_dims = 6;

// Holds a typed number attached to an op when the program is written.
union Attr {
  std::int64_t i;
  double f;
};

}  // namespace prun
