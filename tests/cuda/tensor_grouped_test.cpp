#include "experts/cuda_grouped.hpp"

#include <numeric>

#include "tests/cuda/device_value.hpp"

namespace prun::test::tensor_grouped_test {
namespace {

using cuda::GroupedForm;

using TensorGrouped = CudaTest;
using Numbers = std::vector<double>;

// How many rows each group has; those that `map` names lie in another order, and some are named twice.
struct Problem {
  std::vector<std::int64_t> sizes;
  std::int64_t n, k;
  bool mapped = false;

  std::int64_t rows() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }
  std::int64_t groups() const { return static_cast<std::int64_t>(sizes.size()); }
  std::int64_t held() const { return mapped ? rows() / 2 + 1 : rows(); }
  Value begin() const {
    std::vector<std::int64_t> all = {0};
    for (const std::int64_t size : sizes) all.push_back(all.back() + size);
    return integers(DType::i32, {groups() + 1}, all);
  }
  std::int64_t place(std::int64_t row) const { return mapped ? (row * 7 + 3) % held() : row; }
  Value map() const {
    std::vector<std::int64_t> all;
    for (std::int64_t row = 0; row < rows(); ++row) all.push_back(place(row));
    return integers(DType::i32, {rows()}, all);
  }
};

// Groups without rows at the beginning, between and at the end, of one row, of a tile and one more, all rows
// in one; widths around tiles and stages.
std::vector<Problem> problems() {
  std::vector<Problem> all = {{{0, 1, 129, 0, 0, 70, 0}, 264, 72, true},
                              {{3, 0, 64}, 8, 8},
                              {{0, 0, 200, 0}, 40, 136, true},
                              {{128, 65}, 256, 64},
                              {{1}, 520, 200},
                              {{0, 0}, 16, 16}};
  if (!on_host) {  // more tiles than there are blocks
    all.push_back({{300, 0, 1, 700, 128, 129, 64, 31}, 520, 1032, true});
    all.push_back({{1500, 40}, 264, 1000});
    all.push_back({std::vector<std::int64_t>(128, 9), 264, 136, true});
  }
  return all;
}

std::string text_of(const Problem& p) {
  std::string text = std::to_string(p.n) + " x " + std::to_string(p.k) + (p.mapped ? ", mapped:" : ":");
  for (const std::int64_t size : p.sizes) text += " " + std::to_string(size);
  return text;
}

constexpr GroupedForm forms[] = {GroupedForm::warps, GroupedForm::pairs};

template <class Body>
void for_problems(Body body) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(text_of(p));
    body(p);
  }
}

// Sums of so many terms in the order in which tensor cores take them.
template <class Out>
double bound(std::int64_t terms) {
  const double of_type = tolerance(dtype_of<Out>());
  return dtype_of<Out>() == DType::f32 ? of_type * std::max(1.0, std::sqrt(double(terms)) / 4) : of_type;
}

// Calls body(group, row) for all rows.
template <class Body>
void for_rows_of(const Problem& p, Body body) {
  std::int64_t row = 0;
  for (std::int64_t g = 0; g < p.groups(); ++g)
    for (std::int64_t i = 0; i < p.sizes[static_cast<std::size_t>(g)]; ++i) body(g, row++);
}

Numbers products(const Problem& p, const Numbers& from, const Numbers& weight, bool turned) {
  Numbers to(static_cast<std::size_t>(p.rows() * p.n));
  for_rows_of(p, [&](std::int64_t g, std::int64_t row) {
    const double* const x = from.data() + p.place(row) * p.k;
    const double* const w = weight.data() + g * p.n * p.k;
    double* const y = to.data() + row * p.n;
    for (std::int64_t a = 0; a < (turned ? p.k : p.n); ++a)
      for (std::int64_t b = 0; b < (turned ? p.n : p.k); ++b)
        y[turned ? b : a] += x[turned ? a : b] * w[a * (turned ? p.n : p.k) + b];
  });
  return to;
}

// Widths: n of the left rows, which are mapped where any are, and k of the right.
Numbers sums(const Problem& p, const Numbers& left, const Numbers& right) {
  Numbers to(static_cast<std::size_t>(p.groups() * p.n * p.k));
  for_rows_of(p, [&](std::int64_t g, std::int64_t row) {
    for (std::int64_t i = 0; i < p.n; ++i)
      for (std::int64_t j = 0; j < p.k; ++j)
        to[static_cast<std::size_t>((g * p.n + i) * p.k + j)] +=
            left[static_cast<std::size_t>(p.place(row) * p.n + i)] *
            right[static_cast<std::size_t>(row * p.k + j)];
  });
  return to;
}

template <bool turned>
void expect_products(const Problem& p, const Value& from, const Value& weight, const Numbers& want) {
  const OnDevice on_from(from), on_weight(weight), map(p.map()), begin(p.begin());
  const cuda::RowGroups groups{begin.as<std::int32_t>(), p.groups(), p.rows()};
  for (const GroupedForm form : forms) {
    SCOPED_TRACE((turned ? "turned, form " : "form ") + std::to_string(int(form)));
    OnDevice to(DType::bf16, {p.rows(), p.n});
    const cuda::GroupedProduct call{{on_from.as<bf16>(), p.mapped ? map.as<std::int32_t>() : nullptr},
                                    on_weight.as<bf16>(),
                                    to.as<bf16>(),
                                    p.n,
                                    p.k};
    ASSERT_TRUE(cuda::tensor_grouped_takes(call, groups));
    cuda::tensor_grouped<turned>(call, groups, form, nullptr);
    expect_close(to.value(), want, bound<bf16>(p.k), "products");
  }
}

template <bool turned>
void expect_products(const Problem& p) {
  const Value from = random_value(DType::bf16, {p.held(), p.k}, 1),
              weight = random_value(DType::bf16, {p.groups(), p.n, p.k}, 2);
  const Numbers want = products(p, from.numbers(), weight.numbers(), turned);
  expect_products<turned>(p, from, weight, want);
}

template <class S>
Value run_sums(const Problem& p, const Value& left, const Value& right, const Value& start, bool begins,
               GroupedForm form) {
  const OnDevice on_left(left), on_right(right), map(p.map()), begin(p.begin());
  OnDevice to(begins ? poison(start) : start);
  const cuda::RowGroups groups{begin.as<std::int32_t>(), p.groups(), p.rows()};
  const cuda::GroupedSums<S> call{{on_left.as<bf16>(), p.mapped ? map.as<std::int32_t>() : nullptr},
                                  on_right.as<bf16>(),
                                  {to.as<S>(), begins},
                                  p.n,
                                  p.k};
  EXPECT_TRUE(cuda::tensor_grouped_takes(call, groups));
  cuda::tensor_grouped(call, groups, form, nullptr);
  return to.value();
}

template <class S>
void expect_sums(const Problem& p, const Value& left, const Value& right, const Numbers& begun) {
  const Value start = random_value(dtype_of<S>(), {p.groups(), p.n, p.k}, 3);
  Numbers added = begun;
  for (std::size_t i = 0; i < added.size(); ++i) added[i] += start[i];
  for (const GroupedForm form : forms)
    for (const bool begins : {false, true}) {
      SCOPED_TRACE(std::string(name_of(dtype_of<S>())) + (begins ? ", begun, form " : ", added, form ") +
                   std::to_string(int(form)));
      expect_close(run_sums<S>(p, left, right, start, begins, form), begins ? begun : added,
                   4 * bound<S>(p.rows()), "sums");
    }
}

TEST_F(TensorGrouped, ProductsAreThoseOfEachGroup) {
  for_problems([](const Problem& p) { expect_products<false>(p), expect_products<true>(p); });
}

TEST_F(TensorGrouped, SumsAreThoseOfEachGroup) {
  for_problems([](const Problem& p) {
    const Value left = random_value(DType::bf16, {p.held(), p.n}, 1),
                right = random_value(DType::bf16, {p.rows(), p.k}, 2);
    const Numbers begun = sums(p, left.numbers(), right.numbers());
    expect_sums<float>(p, left, right, begun), expect_sums<bf16>(p, left, right, begun);
  });
}

// Whatever else is on the device, and wherever a group's rows lie.
TEST_F(TensorGrouped, TheSameBitsEveryTime) {
  const Problem p = {{40, 0, on_host ? 150 : 900}, 264, 136, true};
  const Value left = random_value(DType::bf16, {p.held(), p.n}, 1),
              right = random_value(DType::bf16, {p.rows(), p.k}, 2),
              start(DType::f32, {p.groups(), p.n, p.k});
  for (const GroupedForm form : forms) {
    const Value first = run_sums<float>(p, left, right, start, true, form);
    for (int i = 0; i < (on_host ? 1 : 5); ++i)
      EXPECT_EQ(run_sums<float>(p, left, right, start, true, form).bytes(), first.bytes());
  }
}

// A row that is not finite shows in its own group's sums alone.
TEST_F(TensorGrouped, WhatIsNotFiniteStaysInItsGroup) {
  const Problem p = {{30, 40}, 16, 24};
  Value left = random_value(DType::bf16, {p.held(), p.n}, 1);
  const Value right = random_value(DType::bf16, {p.rows(), p.k}, 2);
  left.set(static_cast<std::size_t>(31 * p.n + 3), std::nan(""));
  for (const GroupedForm form : forms) {
    const Value done = run_sums<float>(p, left, right, Value(DType::f32, {2, p.n, p.k}), true, form);
    for (std::size_t i = 0; i < done.size(); ++i)
      EXPECT_EQ(std::isfinite(done[i]), i / static_cast<std::size_t>(p.k) != 16 + 3) << i;
  }
}

TEST_F(TensorGrouped, RefusesWhatItCannotTake) {
  const OnDevice memory(Value(DType::bf16, {64, 64}));
  const cuda::RowGroups groups{memory.as<std::int32_t>(), 2, 16};
  bf16* const at = memory.as<bf16>();
  EXPECT_TRUE(cuda::tensor_grouped_takes(cuda::GroupedProduct{{at}, at, at, 16, 24}, groups));
  EXPECT_FALSE(cuda::tensor_grouped_takes(cuda::GroupedProduct{{at}, at, at, 12, 24}, groups));
  EXPECT_FALSE(cuda::tensor_grouped_takes(cuda::GroupedProduct{{at}, at + 1, at, 16, 24}, groups));
  EXPECT_FALSE(cuda::tensor_grouped_takes(cuda::GroupedSums<bf16>{{at}, at, {at, true}, 16, 20}, groups));
}

}  // namespace
}  // namespace prun::test::tensor_grouped_test
