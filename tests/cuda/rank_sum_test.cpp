#include "cuda/rank_sum.hpp"

#include <algorithm>

#include "tests/cuda/device_value.hpp"

namespace prun::test::rank_sum_test {
namespace {

using RankSum = CudaTest;

constexpr std::int64_t n = on_host ? 3001 : 300001;

template <class C>
C combined(C a, C b, bool sums) {
  return sums ? a + b : a > b || a != a ? a : b;
}

// Adds up as the kernel does: in the order of the ranks, rounded at the end.
template <class T>
Value expected(const std::vector<Value>& parts, bool sums) {
  using C = cuda::Compute<T>;
  Value want(dtype_of<T>(), {n});
  for (std::size_t i = 0; i < want.size(); ++i) {
    auto all = static_cast<C>(parts.front()[i]);
    for (std::size_t rank = 1; rank < parts.size(); ++rank)
      all = combined(all, static_cast<C>(parts[rank][i]), sums);
    want.set(i, static_cast<double>(all));
  }
  return want;
}

template <class T>
void expect_ranks(int ranks, bool sums, bool in_place, std::int64_t offset) {
  constexpr DType type = dtype_of<T>();
  std::vector<Value> parts;
  std::vector<std::unique_ptr<OnDevice>> there;
  cuda::RankParts of{};
  of.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(random_value(type, {n}, 1u + static_cast<unsigned>(rank), 100));
    of.part[rank] = there.emplace_back(std::make_unique<OnDevice>(parts.back(), offset))->template as<T>();
  }
  OnDevice apart(type, {n}, offset);
  OnDevice& to = in_place ? *there.back() : apart;
  (sums ? cuda::sum_ranks<T> : cuda::largest_of_ranks<T>)(of, to.as<T>(), n, 3, nullptr);
  EXPECT_EQ(to.value().bytes(), expected<T>(parts, sums).bytes())
      << ranks << (sums ? " summed" : " largest") << (in_place ? " in place" : "");
}

TEST_F(RankSum, AddsInTheOrderOfTheRanksAndRoundsOnce) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const int ranks : {1, 2, 3, 8})
      for (const bool sums : {true, false})
        for (const bool in_place : {false, true}) expect_ranks<T>(ranks, sums, in_place, offset);
  });
}

TEST_F(RankSum, AddsWholeNumbersAndTheyWrap) {
  const std::vector<std::int64_t> a = {1, -5, 2147483647, 7}, b = {2, 3, 1, -9};
  OnDevice first(integers(DType::i32, {4}, a)), second(integers(DType::i32, {4}, b)), to(DType::i32, {4});
  const cuda::RankParts parts{{first.as<std::int32_t>(), second.as<std::int32_t>()}, 2};
  cuda::sum_ranks<std::int32_t>(parts, to.as<std::int32_t>(), 4, 1, nullptr);
  EXPECT_EQ(to.value().numbers(), (std::vector<double>{3, -2, -2147483648.0, -2}));
  cuda::largest_of_ranks<std::int32_t>(parts, to.as<std::int32_t>(), 4, 1, nullptr);
  EXPECT_EQ(to.value().numbers(), (std::vector<double>{2, 3, 2147483647, 7}));
}

TEST_F(RankSum, ANumberThatIsNoneIsTheLargest) {
  const double none = std::nan("");
  OnDevice first(Value(DType::f32, {3}, {none, 1, 2})), second(Value(DType::f32, {3}, {0, none, 1})),
      to(DType::f32, {3});
  const cuda::RankParts parts{{first.as<float>(), second.as<float>()}, 2};
  cuda::largest_of_ranks<float>(parts, to.as<float>(), 3, 1, nullptr);
  const Value got = to.value();
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]));
  EXPECT_EQ(got[2], 2);
}

}  // namespace
}  // namespace prun::test::rank_sum_test
