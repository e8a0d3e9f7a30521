#include "base/floats.hpp"

#include <cstring>

#include "prun/split_master.hpp"

namespace prun {
namespace {

template <class T, class Convert>
void store(std::span<const float> numbers, std::byte* to, const Convert& converted) {
  for (const float number : numbers) {
    const T element = converted(number);
    std::memcpy(to, &element, sizeof element);
    to += sizeof element;
  }
}

}  // namespace

void store_floats(DType type, std::span<const float> numbers, std::byte* to) {
  switch (type) {
    case DType::f32: std::memcpy(to, numbers.data(), numbers.size_bytes()); break;
    case DType::f64: store<double>(numbers, to, [](float x) { return double{x}; }); break;
    case DType::u16: store<std::uint16_t>(numbers, to, [](float x) { return low_half(x); }); break;
    case DType::f16: store<f16>(numbers, to, [](float x) { return f16(x); }); break;
    default: store<std::uint16_t>(numbers, to, [](float x) { return rounded_half(x); });
  }
}

void store_nearest(DType type, std::span<const float> numbers, std::byte* to) {
  if (type != DType::bf16) return store_floats(type, numbers, to);
  store<bf16>(numbers, to, [](float x) { return bf16(x); });
}

namespace {

template <class T>
void load_each(std::span<const std::byte> from, std::span<float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T element;
    std::memcpy(&element, from.data() + i * sizeof element, sizeof element);
    numbers[i] = static_cast<float>(element);
  }
}

}  // namespace

void load_floats(DType type, std::span<const std::byte> from, std::span<float> numbers) {
  if (type == DType::f32) {
    std::memcpy(numbers.data(), from.data(), numbers.size_bytes());
  } else if (type == DType::bf16) {
    load_each<bf16>(from, numbers);
  } else if (type == DType::f16) {
    load_each<f16>(from, numbers);
  } else {
    PRUN_CHECK(type == DType::f64, "floats do not hold ", name_of(type));
    load_each<double>(from, numbers);
  }
}

}  // namespace prun
