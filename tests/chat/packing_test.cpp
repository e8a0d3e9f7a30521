#include "chat_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.hpp"

namespace prun::test {
namespace {

TEST(Packing, EachConversationIsInOneSampleAndFitsThere) {
  constexpr std::int64_t room = 100;
  std::vector<std::int64_t> lengths;
  for (std::uint64_t i = 0; i < 1000; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(permute(i, 1000, 7, 3)) % room);
  const auto samples = chat::pack(lengths, room);
  std::vector<int> seen(lengths.size());
  for (const std::vector<std::uint32_t>& sample : samples) {
    std::int64_t taken = static_cast<std::int64_t>(sample.size()) - 1;  // between two
    for (const std::uint32_t i : sample) {
      taken += lengths[i];
      ++seen[i];
    }
    EXPECT_LE(taken, room);
    EXPECT_GE(taken, 1);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 1000);
  const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LT(static_cast<double>(samples.size()) * room, 1.15 * static_cast<double>(all));
}

TEST(Packing, WhatComesEarlyStaysEarly) {
  const std::vector<std::int64_t> lengths(1000, 30);
  const auto samples = chat::pack(lengths, 100);
  for (std::size_t i = 1; i < samples.size(); ++i) EXPECT_LT(samples[i - 1].front(), samples[i].front());
  EXPECT_EQ(samples.size(), 334u);
}

TEST(Packing, OneThatFillsASampleIsAlone) {
  EXPECT_EQ(chat::pack(std::vector<std::int64_t>{100, 100, 1}, 100).size(), 3u);
  EXPECT_EQ(chat::pack(std::vector<std::int64_t>{98, 1}, 100).size(), 1u);
  EXPECT_EQ(chat::pack(std::vector<std::int64_t>{99, 1}, 100).size(), 2u);
}

}  // namespace
}  // namespace prun::test
