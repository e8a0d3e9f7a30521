#include "base/numbered.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "base/narrow.hpp"

namespace prun::numbered_test {
namespace {

TEST(Numbered, TakesAnyIntegerAsAnIndex) {
  Numbered<int> list = {10, 11, 12};
  const std::int32_t narrow_number = 1;
  const std::int64_t wide = 2;
  list[narrow_number] = 21;
  EXPECT_EQ(list[wide] + list[narrow_number] + list[std::size_t{0}], 12 + 21 + 10);
}

TEST(Numbered, IsMadeOfASignedCount) {
  const Numbered<double> list(std::int64_t{3}, 0.5);
  EXPECT_EQ(list, (std::vector<double>{0.5, 0.5, 0.5}));
  Numbered<bool> marks(std::int32_t{2});
  marks[std::int32_t{1}] = true;
  EXPECT_EQ(marks, (std::vector<bool>{false, true}));
}

TEST(Numbered, ThrowsWhereThereIsNoSuchEntry) {
  const Numbered<int> list = {10};
  EXPECT_EQ(list.at(std::int32_t{0}), 10);
  EXPECT_THROW(list.at(std::int32_t{-1}), std::out_of_range);
  EXPECT_THROW(list.at(1), std::out_of_range);
}

TEST(Numbered, IsViewedByNumberToo) {
  const std::vector<int> list = {10, 11};
  const NumberedView<int> view(list);
  EXPECT_EQ(view[std::int32_t{1}], 11);
  EXPECT_EQ(view.size(), 2u);
}

TEST(Narrow, KeepsWhatFitsAndRefusesWhatDoesNot) {
  EXPECT_EQ(narrow<std::int32_t>(std::size_t{7}), 7);
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-7}), -7);
  EXPECT_THROW(narrow<std::int32_t>(std::int64_t{1} << 31), Error);
  EXPECT_THROW(narrow<std::size_t>(-1), Error);
}

}  // namespace
}  // namespace prun::numbered_test
