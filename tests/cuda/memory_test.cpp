#include "memory/cuda.hpp"

#include "tests/cuda/device_value.hpp"
#include "tests/support/checksum_total.hpp"

namespace prun::test::memory_test {
namespace {

using Memory = CudaTest;

TEST_F(Memory, ChecksumsAreTheCpus) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::u16, DType::u8})
    for (const std::int64_t n : {1, 127, 70'001, 1'000'003}) {
      Value x(type, {n});
      auto* const bytes = x.tensor().as<unsigned char>();
      for (std::size_t i = 0; i < x.bytes().size(); ++i) bytes[i] = static_cast<unsigned char>(i * i + 3 * i);
      const Value sums(DType::i64, {128});
      OnDevice in(x, size_of(type)), out(DType::i64, {128}, 0);
      cuda::checksum(in.as<char>(), n, size_of(type), out.as<std::uint64_t>(), 128, nullptr);
      EXPECT_EQ(total(out.value()), total(cpu("checksum", {x, sums})[1])) << name_of(type) << " " << n;
    }
}

}  // namespace
}  // namespace prun::test::memory_test
