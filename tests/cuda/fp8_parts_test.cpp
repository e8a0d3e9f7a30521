#include "fp8_parts/cuda.hpp"

#include "cuda/fp8_blocks.hpp"
#include "tests/cuda/device_value.hpp"
#include "tests/support/fp8_parts.hpp"

namespace prun::test::fp8_parts_test {
namespace {

using Fp8Parts = CudaTest;

// The sign of zero, and of what is no number, is the device's to choose.
bool stand_for_the_same(char a, char b) {
  const int size = a & 0x7f;
  return a == b || ((size == 0 || size == 0x7f) && size == (b & 0x7f));
}

template <class T>
void check(const SharedOut& how, std::int64_t offset) {
  const Value x = numbers_to_share(dtype_of<T>(), how);
  for (std::int64_t rank = 0; rank < how.parts; ++rank) {
    const Value part = how.part_of(x, rank), none(DType::f32, {how.peaks()}), blank(DType::u8, {how.part()});
    const std::vector<Start> starts = {{0, 0, rank * how.part()}};
    const std::int64_t from = rank * how.part() - SharedOut::first;
    const cuda::MatrixInPart matrix{how.rows, how.columns, from, from + how.part()};
    const OnDevice in(part, offset);
    OnDevice peaks(none, 0), codes(blank, 0);
    cuda::peak_fp8_squares(in.as<const T>(), matrix, peaks.as<float>() + SharedOut::place, nullptr);
    const Value want = cpu("peak_fp8_squares", {part, none}, how.attrs(), starts).back();
    EXPECT_EQ(peaks.value().bytes(), want.bytes()) << how.rows << " x " << how.columns << ", " << rank;
    cuda::encode_fp8_part(in.as<const T>(), matrix, peaks.as<float>() + SharedOut::place,
                          codes.as<std::uint8_t>(), nullptr);
    const Value made = codes.value(),
                expected = cpu("encode_fp8_part", {part, want, blank}, how.attrs(), starts).back();
    for (std::size_t i = 0; i < made.bytes().size(); ++i)
      ASSERT_TRUE(stand_for_the_same(made.bytes()[i], expected.bytes()[i]))
          << how.rows << " x " << how.columns << ", " << rank << ", " << i;
  }
}

TEST_F(Fp8Parts, HaveTheCpusPeaksAndCodes) {
  for_types([]<class T>(std::int64_t offset) {
    if constexpr (!std::is_same_v<T, double>)
      for (const SharedOut& how : shared_out) check<T>(how, offset);
  });
}

TEST_F(Fp8Parts, CodesTurnedAreThoseByColumns) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{256, 384}, {400, 144}, {16, 528}}) {
    const Value x = uneven_numbers(DType::bf16, rows, columns, 1);
    const OnDevice in(x, 0);
    const auto codes = [&] { return OnDevice(DType::u8, {rows, columns}); };
    const auto scales = [](std::int64_t down, std::int64_t along) {
      return OnDevice(Value(DType::f32, {cuda::fp8_square_scales(down, along)}), 0);
    };
    OnDevice by_rows = codes(), want = codes(), turned = codes(), of_rows = scales(rows, columns),
             of_want = scales(columns, rows), of_turned = scales(columns, rows);
    cuda::squares_to_fp8(in.as<const bf16>(), rows, columns, false,
                         {by_rows.as<std::uint8_t>(), of_rows.as<float>()}, nullptr);
    cuda::squares_to_fp8(in.as<const bf16>(), rows, columns, true,
                         {want.as<std::uint8_t>(), of_want.as<float>()}, nullptr);
    cuda::turn_fp8_squares({by_rows.as<std::uint8_t>(), of_rows.as<float>()}, rows, columns,
                           {turned.as<std::uint8_t>(), of_turned.as<float>()}, nullptr);
    EXPECT_EQ(turned.value().bytes(), want.value().bytes()) << rows << " x " << columns;
    EXPECT_EQ(of_turned.value().bytes(), of_want.value().bytes()) << rows << " x " << columns;
  }
}

TEST_F(Fp8Parts, RowsOfSquaresHaveTheCpusCodes) {
  for_types([]<class T>(std::int64_t offset) {
    if constexpr (!std::is_same_v<T, double>) {
      Value x = uneven_numbers(dtype_of<T>(), 256, 384, 1);
      x.set(7, std::nan(""));
      const OnDevice in(x, offset);
      OnDevice codes(DType::u8, {256, 384 / 128 * 132});
      cuda::square_rows_to_fp8(in.as<const T>(), 256, 384, codes.as<std::uint8_t>(), nullptr);
      const std::vector<Attr> to = {Attr{.i = static_cast<std::int64_t>(dtype_of<T>())}};
      const Value blank(DType::u8, {256, 384 / 128 * 132}), numbers(dtype_of<T>(), {256, 384});
      const Value made = cpu("decode_fp8", {codes.value(), numbers}, to).back(),
                  want = cpu("decode_fp8", {cpu("encode_fp8_square_rows", {x, blank}).back(), numbers}, to)
                             .back();
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_TRUE(made[i] == want[i] || (std::isnan(made[i]) && std::isnan(want[i]))) << i;
    }
  });
}

}  // namespace
}  // namespace prun::test::fp8_parts_test
