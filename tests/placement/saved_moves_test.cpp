// What backward reads of forward, shared out over places by whole values.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "placement/moves.hpp"
#include "program/passes.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::saved_moves_test {
namespace {

constexpr MemoryPlace own{0, Space::device}, pinned{0, Space::pinned}, disk{1, Space::disk};

class SavedMoves : public testing::Test {
 protected:
  // With a device 1, and nothing elsewhere yet.
  Program fresh() const {
    Program program = assembly_.unlowered();
    program.requests().add_device("nvme");
    return program;
  }

  static Id block_of(const Program& program) {
    for (Id id = 0; id < program.segment_count(); ++id)
      if (program.segment(id).name == "block") return id;
    return none;
  }

  Program shared(const std::vector<SavedShare>& shares) const {
    Program program = fresh();
    program.share_saved(block_of(program), shares);
    derive_saved_moves(program);
    return program;
  }

  // Where a block's lie in between, in the order in which they leave or return.
  static std::vector<Id> away(const Program& program, FunctionKind kind) {
    std::vector<Id> values;
    for (Id op : program.segment(block_of(program)).ops(kind))
      for (Id value : program.op(op).operands)
        if (program.value(value).name.ends_with(".away")) values.push_back(value);
    return values;
  }

  static std::map<Space, std::vector<double>> sizes_by_space(const Program& program) {
    std::map<Space, std::vector<double>> sizes;
    for (Id value : away(program, FunctionKind::put_away))
      sizes[program.value(value).place->space].push_back(static_cast<double>(program.local_bytes(value)));
    for (auto& [space, list] : sizes) std::sort(list.rbegin(), list.rend());
    return sizes;
  }

  static double sum(const std::vector<double>& list) {
    double all = 0;
    for (const double one : list) all += one;
    return all;
  }

  const Assembly assembly_{tiny_recipe(), plugins()};
};

TEST_F(SavedMoves, EachPlaceHasItsPerCentOfWholeValues) {
  const std::vector<double> all = sizes_by_space(shared({{pinned, 100}})).at(Space::pinned);
  ASSERT_GE(all.size(), 6u);
  const Program program = shared({{own, 30}, {pinned, 50}, {disk, 20}});
  const auto sizes = sizes_by_space(program);
  const double near = all.front() / 2;
  EXPECT_NEAR(sum(sizes.at(Space::pinned)), 0.5 * sum(all), near);
  EXPECT_NEAR(sum(sizes.at(Space::disk)), 0.2 * sum(all), near);
  EXPECT_EQ(sizes.at(Space::pinned).front(), all.front()) << "the largest where most is missing";
  EXPECT_LT(sizes.at(Space::pinned).size() + sizes.at(Space::disk).size(), all.size()) << "some stay";
}

TEST_F(SavedMoves, WhatGoesToDrivesLeavesFirstAndReturnsLast) {
  const Program program = shared({{pinned, 50}, {disk, 50}});
  const auto drives = [&](FunctionKind kind) {
    std::vector<bool> list;
    for (Id value : away(program, kind)) list.push_back(program.value(value).place == disk);
    return list;
  };
  const std::vector<bool> left = drives(FunctionKind::put_away), back = drives(FunctionKind::bring_back);
  EXPECT_TRUE(left.front());
  EXPECT_FALSE(left.back());
  EXPECT_TRUE(std::is_sorted(left.rbegin(), left.rend()));
  EXPECT_EQ(back, std::vector<bool>(left.rbegin(), left.rend()));
}

TEST_F(SavedMoves, TheSameSharesGiveTheSameProgram) {
  const std::vector<SavedShare> shares = {{own, 30}, {pinned, 50}, {disk, 20}};
  EXPECT_EQ(to_text(shared(shares)), to_text(shared(shares)));
}

TEST_F(SavedMoves, OnePlaceMeansAllOfIt) {
  Program program = fresh();
  const SavedShare share{pinned};
  ASSERT_TRUE(program_api().share_saved(&program, block_of(program), {&share, 1}).ok());
  derive_saved_moves(program);
  EXPECT_EQ(to_text(program), to_text(shared({{pinned, 100}})));
  EXPECT_NE(to_text(program), to_text(fresh()));
  EXPECT_EQ(to_text(shared({{own, 100}})), to_text(fresh()));
}

TEST_F(SavedMoves, SharesThatCannotBeAreRefused) {
  const auto refusal = [&](const std::vector<SavedShare>& shares) -> std::string {
    try {
      shared(shares);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      refusal({{pinned, 60}, {disk, 30}}),
      "segment 'block': the shares of what backward reads of forward come to 90 per cent; let them come to "
      "100");
  EXPECT_EQ(
      refusal({}),
      "segment 'block': the shares of what backward reads of forward come to 0 per cent; let them come to "
      "100");
  EXPECT_EQ(refusal({{pinned, 50}, {pinned, 50}}),
            "cannot place 50 per cent of the saved activations of segment 'block' in pinned host memory of "
            "device 0: "
            "it is named twice; name each place once, with 1 per cent or more");
  EXPECT_EQ(
      refusal({{pinned, 0}, {disk, 100}}),
      "cannot place 0 per cent of the saved activations of segment 'block' in pinned host memory of device "
      "0: that is less than 1; name each place once, with 1 per cent or more");
  EXPECT_NE(refusal({{{7, Space::disk}, 100}}).find("a rank has no device 7"), std::string::npos);
}

}  // namespace
}  // namespace prun::test::saved_moves_test
