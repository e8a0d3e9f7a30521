// ahead beside what the words say, in order and not, of whole sequences and of documents; pair and half.
#include <functional>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, ahead_test)

namespace prun::test::ahead_test {
namespace {

constexpr std::int64_t batch = 2, seq = 8;

Value numbers_of(const std::function<std::int64_t(std::int64_t, std::int64_t)>& number) {
  std::vector<std::int64_t> list;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < seq; ++i) list.push_back(number(b, i));
  return integers(DType::i32, {batch, seq}, list);
}

Value at_places(const Value& of_positions, const std::vector<std::int64_t>& positions) {
  return numbers_of([&](std::int64_t b, std::int64_t place) {
    return static_cast<std::int64_t>(
        of_positions[static_cast<std::size_t>(b * seq) + static_cast<std::size_t>(positions[place])]);
  });
}

TEST(Ahead, LooksWithinTheSequenceAndTheDocument) {
  // The first sample is of documents of 3, 1 and 4 positions, the second of a single one.
  constexpr std::int64_t start[batch][seq] = {{0, 0, 0, 3, 4, 4, 4, 4}, {}};
  const std::vector<std::int64_t> order = {0, 1, 6, 7, 2, 3, 4, 5};
  const auto number = [](std::int64_t b, std::int64_t i) { return 100 * (b + 1) + i; };
  const Value x = numbers_of(number),
              documents = numbers_of([&](std::int64_t b, std::int64_t i) { return start[b][i]; }),
              positions = integers(DType::i32, {seq}, order);
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t by : {1, 2, 5, 8, 9})
      for (const bool apart : {false, true}) {
        const std::vector<Attr> attrs = {{.i = by}, {.i = -1}};
        const Value want = numbers_of([&](std::int64_t b, std::int64_t i) {
          const bool there = i + by < seq && (!apart || start[b][i] == start[b][i + by]);
          return there ? number(b, i + by) : -1;
        });
        const Value starts = apart ? documents : Value();
        EXPECT_EQ(
            run(set, {"ahead", {x, Value(DType::i32, {batch, seq}), Value(), starts}, attrs})[1].numbers(),
            want.numbers())
            << by << " ahead, " << apart;
        const Value places = apart ? at_places(documents, order) : Value();
        EXPECT_EQ(run(set, {"ahead",
                            {at_places(x, order), Value(DType::i32, {batch, seq}), positions, places},
                            attrs})[1]
                      .numbers(),
                  at_places(want, order).numbers())
            << by << " ahead, " << apart << ", in another order";
      }
}

TEST(Pair, IsBothBehindEachOtherAndHalfIsOneOfThem) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const Value a = random_value(type, {2, 3, 5}, 1), b = random_value(type, {2, 3, 5}, 2);
      const Value pair = run(set, {"pair", {a, b, Value(type, {2, 3, 10})}})[2];
      for (std::size_t row = 0; row < 6; ++row)
        for (std::size_t i = 0; i < 5; ++i) {
          EXPECT_EQ(pair[row * 10 + i], a[row * 5 + i]);
          EXPECT_EQ(pair[row * 10 + 5 + i], b[row * 5 + i]);
        }
      EXPECT_EQ(run(set, {"half", {pair, Value(type, {2, 3, 5})}, {{.i = 0}}})[1].bytes(), a.bytes());
      EXPECT_EQ(run(set, {"half", {pair, Value(type, {2, 3, 5})}, {{.i = 1}}})[1].bytes(), b.bytes());
    }
}

}  // namespace
}  // namespace prun::test::ahead_test
