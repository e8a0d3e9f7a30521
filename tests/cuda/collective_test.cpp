#include "collective/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::collective_test {
namespace {

using Collectives = CudaTest;

// Bytes, so that runs of any length can be told apart.
Value bytes_of(std::int64_t count) {
  Value value(DType::u16, {(count + 1) / 2});
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, static_cast<double>(i * 31 % 65521));
  return value;
}

// What to[i] = from[source(i)] means for runs of so many bytes.
template <class Source>
std::vector<char> moved(const Value& from, std::int64_t runs, std::int64_t bytes, Source source) {
  std::vector<char> to;
  for (std::int64_t i = 0; i < runs; ++i) {
    const auto first = from.bytes().begin() + source(i);
    to.insert(to.end(), first, first + bytes);
  }
  return to;
}

// What lies on the device from its first byte on.
std::vector<char> first_bytes(OnDevice& value, std::size_t count) {
  std::vector<char> all = value.value().bytes();
  all.resize(count);
  return all;
}

// Runs that take each width of words.
TEST_F(Collectives, SwapOuterAndTakeMoveRuns) {
  for (std::int64_t bytes : {16, 12, 6, 3, 4096, 1})
    for (std::int64_t offset : {0, 1}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, " + std::to_string(offset) + " off");
      constexpr std::int64_t a = 3, b = 7;
      const Value x = bytes_of(a * b * bytes);
      OnDevice from(x, offset), swapped(DType::u16, x.dims(), offset), taken(DType::u16, x.dims(), offset);
      cuda::swap_outer(from.as<char>(), swapped.as<char>(), a, b, bytes, nullptr);
      EXPECT_EQ(first_bytes(swapped, a * b * bytes),
                moved(x, a * b, bytes, [&](std::int64_t i) { return (i % a * b + i / a) * bytes; }));
      cuda::take(from.as<char>(), taken.as<char>(), a, b * bytes, 2 * bytes, bytes, nullptr);
      EXPECT_EQ(first_bytes(taken, a * bytes),
                moved(x, a, bytes, [&](std::int64_t i) { return i * b * bytes + 2 * bytes; }));
    }
}

TEST_F(Collectives, GatePassesAllOrNothing) {
  for (std::int64_t bytes : {16, 20, 30, 70'000}) {
    const Value x = bytes_of(bytes);
    OnDevice from(x), closed(number(0)), open(number(0.5)), nothing(DType::u16, x.dims()),
        all(DType::u16, x.dims());
    cuda::gate(from.as<char>(), closed.as<double>(), nothing.as<char>(), bytes, nullptr);
    cuda::gate(from.as<char>(), open.as<double>(), all.as<char>(), bytes, nullptr);
    EXPECT_EQ(nothing.value().bytes(), std::vector<char>(x.bytes().size(), 0));
    EXPECT_EQ(all.value().bytes(), x.bytes());
  }
}

}  // namespace
}  // namespace prun::test::collective_test
