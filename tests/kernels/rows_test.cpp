// send_rows, send_choices, return_rows and count_rows, beside what a loop over positions finds; and experts,
// whose rows are sent, beside experts of positions.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(rows_kernels, rows_test)

namespace prun::test::rows_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::test::Call;
using prun::test::expect_batch_free;
using prun::test::InstructionSet;
using prun::test::integers;
using prun::test::random_value;
using prun::test::run;
using prun::test::Value;

struct Case {
  std::int64_t sequences, positions, choices, experts, parts, rows;

  std::vector<Attr> attrs() const { return {Attr{.i = parts}, Attr{.i = rows}, Attr{.i = experts}}; }
  std::int64_t part_of(std::int64_t expert) const { return expert / (experts / parts); }
};

constexpr std::int64_t hidden = 5;

const Case cases[] = {{1, 12, 2, 4, 2, 9},
                      {3, 20, 3, 8, 4, 12},
                      {2, 17, 1, 3, 3, 17},
                      {4, 9, 4, 6, 2, 3},
                      {2, 30, 8, 16, 8, 20}};

// Each position chooses experts that differ, and leaves some choices out, as a capacity does.
Value drawn_choices(const Case& c, std::uint32_t seed) {
  std::vector<std::int64_t> index;
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < c.sequences * c.positions; ++i) {
    std::vector<std::int64_t> left(static_cast<std::size_t>(c.experts));
    std::iota(left.begin(), left.end(), 0);
    std::shuffle(left.begin(), left.end(), random);
    for (std::int64_t k = 0; k < c.choices; ++k)
      index.push_back(random() % 5 == 0 ? -1 : left[static_cast<std::size_t>(k)]);
  }
  return integers(DType::i32, {c.sequences, c.positions, c.choices}, index);
}

// Returns the positions of a sequence that have a choice in that part, in order.
std::vector<std::int64_t> positions_in(const Case& c, const Value& index, std::int64_t part,
                                       std::int64_t sequence) {
  std::vector<std::int64_t> list;
  for (std::int64_t p = sequence * c.positions; p < (sequence + 1) * c.positions; ++p) {
    bool any = false;
    for (std::int64_t k = 0; k < c.choices; ++k) {
      const auto expert = static_cast<std::int64_t>(index[static_cast<std::size_t>(p * c.choices + k)]);
      any = any || (expert >= 0 && c.part_of(expert) == part);
    }
    if (any) list.push_back(p);
  }
  return list;
}

// Calls body(row, position or -1, part) for all rows.
template <class Body>
void each_row(const Case& c, const Value& index, const Body& body) {
  for (std::int64_t part = 0; part < c.parts; ++part)
    for (std::int64_t sequence = 0; sequence < c.sequences; ++sequence) {
      const std::vector<std::int64_t> list = positions_in(c, index, part, sequence);
      for (std::int64_t r = 0; r < c.rows; ++r)
        body(static_cast<std::size_t>((part * c.sequences + sequence) * c.rows + r),
             r < std::ssize(list) ? list[static_cast<std::size_t>(r)] : -1, part);
    }
}

Value rows_like(const Case& c, DType type, std::int64_t width) {
  return Value(type, {c.parts, c.sequences, c.rows, width});
}

constexpr DType value_types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

TEST(SendRows, AreThePositionsOfAPartInOrderAndZerosBehindThem) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : value_types)
      for (const Case& c : cases) {
        const Value index = drawn_choices(c, 1),
                    x = random_value(type, {c.sequences, c.positions, hidden}, 2);
        const Value rows = run(set, {"send_rows", {x, index, rows_like(c, type, hidden)}, c.attrs()})[2];
        each_row(c, index, [&](std::size_t row, std::int64_t position, std::int64_t) {
          for (std::size_t i = 0; i < hidden; ++i)
            EXPECT_EQ(rows[row * hidden + i],
                      position < 0 ? 0 : x[static_cast<std::size_t>(position) * hidden + i]);
        });
      }
}

TEST(SendChoices, AreThoseOfThePartAndNobodysOtherwise) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32})
      for (const Case& c : cases) {
        const Value index = drawn_choices(c, 3), weight = random_value(type, index.dims(), 4);
        const std::vector<Value> got =
            run(set, {"send_choices",
                      {index, weight, rows_like(c, DType::i32, c.choices), rows_like(c, type, c.choices)},
                      c.attrs()});
        each_row(c, index, [&](std::size_t row, std::int64_t position, std::int64_t part) {
          for (std::int64_t k = 0; k < c.choices; ++k) {
            const auto at = static_cast<std::size_t>(position * c.choices + k),
                       to = row * static_cast<std::size_t>(c.choices) + static_cast<std::size_t>(k);
            const bool own =
                position >= 0 && index[at] >= 0 && c.part_of(static_cast<std::int64_t>(index[at])) == part;
            EXPECT_EQ(got[2][to], own ? index[at] : -1);
            EXPECT_EQ(got[3][to], own ? weight[at] : 0);
          }
        });
      }
}

TEST(ReturnRows, AddsARowOfEachPartInTheirOrder) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : value_types)
      for (const Case& c : cases) {
        const DType numbers = type == DType::f64 ? DType::f64 : DType::f32;
        const Value index = drawn_choices(c, 5),
                    rows = random_value(type, {c.parts, c.sequences, c.rows, hidden}, 6),
                    of_rows = random_value(numbers, {c.parts, c.sequences, c.rows, c.choices}, 7);
        const std::vector<Value> got =
            run(set, {"return_rows",
                      {rows, index, of_rows, Value(type, {c.sequences, c.positions, hidden}),
                       Value(numbers, index.dims())},
                      c.attrs()});
        Value y(DType::f64, got[3].dims()), own(DType::f64, index.dims());
        each_row(c, index, [&](std::size_t row, std::int64_t position, std::int64_t part) {
          if (position < 0) return;
          const auto p = static_cast<std::size_t>(position), k = static_cast<std::size_t>(c.choices);
          for (std::size_t i = 0; i < hidden; ++i)
            y.set(p * hidden + i, y[p * hidden + i] + rows[row * hidden + i]);
          for (std::size_t i = 0; i < k; ++i)
            if (index[p * k + i] >= 0 && c.part_of(static_cast<std::int64_t>(index[p * k + i])) == part)
              own.set(p * k + i, of_rows[row * k + i]);
        });
        for (std::size_t i = 0; i < y.size(); ++i)
          EXPECT_NEAR(got[3][i], y[i], 8 * prun::test::tolerance(type));
        EXPECT_EQ(got[4].numbers(), own.numbers());
      }
}

TEST(CountRows, AreTheMostOfAnyPartAndSequenceInItsLayer) {
  for (const InstructionSet& set : all_kernels())
    for (const Case& c : cases) {
      const Value index = drawn_choices(c, 8);
      std::ptrdiff_t most = 0;
      for (std::int64_t part = 0; part < c.parts; ++part)
        for (std::int64_t sequence = 0; sequence < c.sequences; ++sequence)
          most = std::max(most, std::ssize(positions_in(c, index, part, sequence)));
      std::vector<Attr> attrs = c.attrs();
      attrs.push_back(Attr{.f = 2.5});
      Call call{"count_rows", {index, Value(DType::f64, {2, 2}, {1, 2, 0, 0})}, attrs};
      call.layer = 1;
      EXPECT_EQ(run(set, call)[1].numbers(), (std::vector<double>{1, 2, static_cast<double>(most) / 2.5,
                                                                  static_cast<double>(c.rows) / 2.5}));
      call.operands[1] = Value(DType::f64, {2, 2}, {1, 2, 100, 0});
      EXPECT_EQ(run(set, call)[1][2], 100);
    }
}

}  // namespace
}  // namespace prun::test::rows_test
