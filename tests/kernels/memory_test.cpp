// zero, copy and checksum: bytes of every type, with and without workers.
#include "prun/checksum.hpp"

#include "tests/support/checksum_total.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(memory_kernels, memory_test)

namespace prun::test::memory_test {
namespace {

constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8};

// A few, and more than one thread moves at once.
std::vector<std::int64_t> lengths(DType type) { return {1, 1001, (1'200'000 + 13) / size_of(type)}; }

// Every byte a different one from its neighbours'.
Value pattern(DType type, std::int64_t n) {
  Value value(type, {n});
  auto* bytes = value.tensor().as<unsigned char>();
  for (std::size_t i = 0; i < value.bytes().size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  return value;
}

TEST(Copy, MovesBytesOfAnyType) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (std::int64_t n : lengths(type)) {
        const Value x = pattern(type, n);
        EXPECT_EQ(run(set, {"copy", {x, Value(type, {n})}})[1].bytes(), x.bytes()) << name_of(type) << n;
      }
}

TEST(Zero, ClearsAnyType) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (std::int64_t n : lengths(type))
        EXPECT_EQ(run(set, {"zero", {pattern(type, n)}})[0].bytes(), Value(type, {n}).bytes())
            << name_of(type);
}

TEST(Checksum, IsTheSumOfItsElementsTermsHoweverTheyAreSharedOut) {
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t n : {1, 3, 1001}) {
      const Value x = pattern(DType::f32, n);
      std::uint64_t want = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, x.bytes().data() + 4 * i, sizeof bits);
        want += checksum_term(bits, i);
      }
      for (const std::int64_t parts : {1, 7, 128})
        EXPECT_EQ(total(run(set, {"checksum", {x, Value(DType::i64, {parts})}})[1]), want)
            << n << " " << parts;
    }
}

TEST(Checksum, AnyBitAndAnyPlaceCounts) {
  const InstructionSet set = all_kernels().back();
  for (DType type : types) {
    const auto sum_of = [&](const Value& x) {
      return total(run(set, {"checksum", {x, Value(DType::i64, {128})}})[1]);
    };
    Value x = pattern(type, 9);
    const std::uint64_t whole = sum_of(x);
    auto* bytes = x.tensor().as<unsigned char>();
    for (std::size_t bit = 0; bit < 8 * x.bytes().size(); ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
      EXPECT_NE(sum_of(x), whole) << name_of(type) << " bit " << bit;
      bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
    std::swap_ranges(bytes, bytes + size_of(type), bytes + size_of(type));
    EXPECT_NE(sum_of(x), whole) << name_of(type);
  }
}

TEST(Memory, NeedsNoWorkers) {
  for (const InstructionSet& set : all_kernels()) {
    Value x = pattern(DType::u8, 1'500'001), y(DType::u8, {1'500'001});
    const Tensor tensors[] = {x.tensor(), y.tensor()};
    Call call{"copy", {x, y}};
    select_kernel(set, call)({tensors, nullptr, nullptr, 0}, {});
    EXPECT_EQ(y.bytes(), x.bytes());
  }
}

TEST(Copy, RefusesToChangeTheType) {
  for (const InstructionSet& set : all_kernels()) {
    Call call{"copy", {Value(DType::f32, {4}), Value(DType::i32, {4})}};
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

}  // namespace
}  // namespace prun::test::memory_test
