// Codes of squares that ranks make of their parts are those of the whole matrix, to the last bit, wherever
// the parts end.
#include "tests/support/fp8_parts.hpp"

PRUN_TEST_KERNELS(all_kernels, fp8_parts_test)

namespace prun::test::fp8_parts_test {
namespace {

Value codes_of(const InstructionSet& set, const Value& x, bool by_rows) {
  const std::int64_t first = x.dims()[by_rows ? 0 : 1], along = x.dims()[by_rows ? 1 : 0];
  const Value blank(DType::u8, {first + (first + 127) / 128, along});
  return run(set, {"encode_fp8_squares", {x, blank}, {Attr{.i = 1}, Attr{.i = by_rows}}}).back();
}

TEST(Fp8Parts, MakeTheCodesOfTheWhole) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const SharedOut& how : shared_out) {
        const Value x = numbers_to_share(type, how);
        std::vector<Value> parts, peaks, codes;
        for (std::int64_t rank = 0; rank < how.parts; ++rank) {
          parts.push_back(how.part_of(x, rank));
          peaks.push_back(run(set, {"peak_fp8_squares",
                                    {parts.back(), Value(DType::f32, {how.peaks()})},
                                    how.attrs(),
                                    {{0, 0, rank * how.part()}}})
                              .back());
        }
        for (std::int64_t rank = 0; rank < how.parts; ++rank)
          codes.push_back(run(set, {"encode_fp8_part",
                                    {parts[static_cast<std::size_t>(rank)], largest_of(peaks),
                                     Value(DType::u8, {how.part()})},
                                    how.attrs(),
                                    {{0, 0, rank * how.part()}}})
                              .back());
        EXPECT_EQ(how.codes_in(codes), codes_of(set, x, true).bytes())
            << set.name << ", " << name_of(type) << ", " << how.rows << " x " << how.columns;
      }
}

// A square has one scale, whichever way its codes run.
TEST(Fp8Parts, CodesTurnedAreThoseByColumns) {
  for (const InstructionSet& set : all_kernels())
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{256, 384}, {400, 144}, {144, 528}}) {
      Value x = uneven_numbers(DType::bf16, rows, columns, 1);
      x.set(7, std::nan(""));
      const Value by_rows = codes_of(set, x, true), want = codes_of(set, x, false);
      const Value turned =
          run(set,
              {"turn_fp8_squares", {by_rows, Value(DType::u8, want.dims())}, {Attr{.i = 1}, Attr{.i = 1}}})
              .back();
      EXPECT_EQ(turned.bytes(), want.bytes()) << set.name << rows << " x " << columns;
    }
}

// A block has its square's scale, so that what it stands for is what the oracle rounds to.
TEST(Fp8Parts, RowsOfSquaresStandForWhatTheOracleRoundsTo) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      Value x = uneven_numbers(type, 256, 384, 1);
      x.set(7, std::nan(""));
      const Value codes =
          run(set, {"encode_fp8_square_rows", {x, Value(DType::u8, {256, 384 / 128 * 132})}, {}}).back();
      const Value numbers =
          run(set,
              {"decode_fp8", {codes, Value(type, {256, 384})}, {Attr{.i = static_cast<std::int64_t>(type)}}})
              .back();
      const Value want = rounded_to_fp8(x, 384, 128, 128);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_TRUE(numbers[i] == want[i] || (std::isnan(numbers[i]) && std::isnan(want[i])))
            << set.name << ", " << name_of(type) << ", " << i << ": " << numbers[i] << ", " << want[i];
    }
}

}  // namespace
}  // namespace prun::test::fp8_parts_test
