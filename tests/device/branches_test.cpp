// Which works of a call the device cuda runs beside the others, and what those wait for.
#include "cuda/branches.hpp"

#include <gtest/gtest.h>

#include "prun/types.hpp"

namespace prun::cuda {
namespace {

// A call over one piece of memory: works read and change some of its bytes.
class BranchesTest : public testing::Test {
 protected:
  struct Bytes {
    int begin, end;
  };
  Touches touches(std::initializer_list<Bytes> read, std::initializer_list<Bytes> changed) {
    Touches all;
    for (const auto& [begin, end] : read) all.push_back({memory_ + begin, memory_ + end, false});
    for (const auto& [begin, end] : changed) all.push_back({memory_ + begin, memory_ + end, true});
    return all;
  }
  void add(std::initializer_list<Bytes> read, std::initializer_list<Bytes> changed,
           std::initializer_list<Bytes> workspace = {}) {
    works_.push_back({.op = "op", .work = {}, .touches = touches(read, changed)});
    for (const Touch& more : touches({}, workspace)) works_.back().touches.push_back(more);
  }
  // One that adds to a sum.
  void add_sum(std::initializer_list<Bytes> read, std::initializer_list<Bytes> changed,
               std::initializer_list<Bytes> workspace = {}) {
    add(read, changed, workspace);
    works_.back().own_touches = touches(read, changed);
    works_.back().bind_to = [](void*) { return Work(); };
  }
  // "main", "beside", or either and the work it waits for: "beside 0".
  std::vector<std::string> branches() const {
    std::vector<std::string> words;
    for (const Branch& branch : branches_of(works_)) {
      words.emplace_back(branch.beside ? "beside" : "main");
      if (branch.after >= 0) words.back() += " " + std::to_string(branch.after);
    }
    return words;
  }

 private:
  std::byte memory_[100];
  std::vector<NamedWork> works_;
};

using Words = std::vector<std::string>;

TEST_F(BranchesTest, AreNoneWhereNobodyAddsToSums) {
  add({{0, 10}}, {{10, 20}});
  add({{10, 20}}, {{20, 30}});
  EXPECT_EQ(branches(), Words{});
}

// dy -> dx -> the next dx, and the weights' gradients of both.
TEST_F(BranchesTest, WeightGradientsRunBesideInputGradients) {
  add({{0, 10}}, {{10, 20}});
  add_sum({{0, 10}}, {{80, 90}});
  add({{10, 20}}, {{20, 30}});
  add_sum({{10, 20}}, {{90, 100}});
  EXPECT_EQ(branches(), (Words{"main", "beside", "main", "beside 0"}));
}

TEST_F(BranchesTest, WhatLaterWorksNeedStays) {
  add_sum({{0, 10}}, {{80, 90}});
  add({{80, 90}}, {{10, 20}});
  add_sum({{10, 20}}, {{90, 100}});
  EXPECT_EQ(branches(), (Words{"main", "main", "beside 1"}));
}

// A sum's two contributions keep their order on one line.
TEST_F(BranchesTest, TwoThatAddToOneSumKeepTheirOrder) {
  add_sum({{0, 10}}, {{80, 90}});
  add({{0, 10}}, {{10, 20}});
  add_sum({{10, 20}}, {{80, 90}});
  EXPECT_EQ(branches(), (Words{"beside", "main", "beside 1"}));
}

TEST_F(BranchesTest, MemoryThatIsUsedAgainIsWaitedFor) {
  add({{0, 10}}, {{10, 20}});
  add_sum({{10, 20}}, {{80, 90}});
  add({{0, 10}}, {{15, 25}});  // over what the sum still reads
  EXPECT_EQ(branches(), (Words{"main", "beside 0", "main 1"}));
}

// Its own workspace lies elsewhere, but that of the others may lie where it reads.
TEST_F(BranchesTest, WorkspacesCountWhereTheyAreUsed) {
  add({{0, 10}}, {{10, 20}}, {{50, 60}});
  add_sum({{0, 10}}, {{80, 90}}, {{50, 60}});
  add({{10, 20}}, {{20, 30}}, {{5, 8}});
  EXPECT_EQ(branches(), (Words{"main", "beside", "main 1"}));
}

TEST_F(BranchesTest, LaunchesTouchTheirOperandsAndWorkspaces) {
  std::byte memory[64];
  Tensor operands[3];
  operands[0] = {.data = memory, .dtype = DType::bf16, .rank = 1, .dim = {8}};
  operands[2] = {.data = memory + 16, .dtype = DType::f32, .rank = 2, .dim = {2, 2}};
  Launch launch;
  launch.args.operands = operands;
  launch.args.operand_count = 3;
  launch.args.changes = 1u << 2;
  launch.args.workspace = memory + 32;
  launch.args.workspace_bytes = 8;
  const Touches all = touches_of({&launch, 1}, true);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].end - all[0].begin, 16);
  EXPECT_FALSE(all[0].changes);
  EXPECT_EQ(all[1].begin, memory + 16);
  EXPECT_EQ(all[1].end, memory + 32);
  EXPECT_TRUE(all[1].changes);
  EXPECT_EQ(all[2].end - all[2].begin, 8);
  EXPECT_TRUE(all[2].changes);
  EXPECT_EQ(touches_of({&launch, 1}, false).size(), 2u);
}

// Two launches over one piece of memory of 16 floats each operand: the first reads a and b and writes sum,
// the second reads sum and writes y.
class OneLaunch : public testing::Test {
 protected:
  static Tensor tensor(float* data, std::int64_t count) {
    Tensor made;
    made.data = data;
    made.dtype = DType::f32;
    made.rank = 1;
    made.dim[0] = count;
    return made;
  }
  // Whether they may be one, y from that float on, workspaces of 8 floats from those on; -1: none.
  bool may(std::int64_t y, bool row_by_row, std::int64_t first_room = -1, std::int64_t second_room = -1) {
    const Tensor first[] = {tensor(memory_, 16), tensor(memory_ + 16, 16), tensor(memory_ + 32, 16)},
                 second[] = {tensor(memory_ + 32, 16), tensor(memory_ + y, 16)};
    Launch launches[2];
    launches[0].args = {.operands = first, .operand_count = 3, .changes = 1u << 2};
    launches[1].args = {.operands = second, .operand_count = 2, .changes = 1u << 1};
    const std::int64_t rooms[] = {first_room, second_room};
    for (int i = 0; i < 2; ++i)
      if (rooms[i] >= 0) {
        launches[i].args.workspace = memory_ + rooms[i];
        launches[i].args.workspace_bytes = 8 * 4;
      }
    return may_be_one(launches, row_by_row);
  }

 private:
  float memory_[128];
};

TEST_F(OneLaunch, WritesNothingWhereItStillReads) {
  EXPECT_TRUE(may(48, false));
  EXPECT_FALSE(may(20, false));  // within b, which the second no longer needs
  EXPECT_FALSE(may(20, true));
  EXPECT_FALSE(may(16, false));  // exactly b
  EXPECT_TRUE(may(16, true));    // row by row that is no matter
  EXPECT_FALSE(may(32, true));   // where the first writes
}

TEST_F(OneLaunch, HasItsWorkspaceToItself) {
  EXPECT_TRUE(may(48, false, 64, 64));   // they need theirs one after the other
  EXPECT_FALSE(may(60, false, 64, -1));  // the second's result lies in the first's
  EXPECT_FALSE(may(48, false, -1, 12));  // the second's lies where the first reads
  EXPECT_FALSE(may(48, true, -1, 16));
}

// A row of launches over one piece of memory, of which each has two operands of a byte: it reads one and
// changes the other.
class RunLast : public testing::Test {
 protected:
  void add(int read, int changed, int workspace = -1) {
    Launch launch;
    launch.args.operand_count = 2;
    launch.args.changes = 2;
    if (workspace >= 0) launch.args.workspace = memory_ + workspace, launch.args.workspace_bytes = 1;
    std::vector<Tensor>& operands = operands_.emplace_back(2);
    operands[0] = {.data = memory_ + read, .dtype = DType::u8};
    operands[1] = {.data = memory_ + changed, .dtype = DType::u8};
    launches_.push_back(launch);
  }
  bool first_may() {
    for (std::size_t i = 0; i < launches_.size(); ++i) launches_[i].args.operands = operands_[i].data();
    return may_run_last(launches_);
  }

 private:
  std::byte memory_[100];
  std::vector<std::vector<Tensor>> operands_;
  std::vector<Launch> launches_;
};

TEST_F(RunLast, WhoseSumNobodyTouches) {
  add(1, 9, 5);
  EXPECT_TRUE(first_may());
  add(1, 2, 3);
  add(2, 5);  // where its workspace was
  EXPECT_TRUE(first_may());
}

TEST_F(RunLast, NotBehindOneThatReadsTheSum) {
  add(1, 9);
  add(9, 2);
  EXPECT_FALSE(first_may());
}

TEST_F(RunLast, NotBehindOneThatAddsToTheSameSum) {
  add(1, 9);
  add(2, 9);
  EXPECT_FALSE(first_may());
}

TEST_F(RunLast, NotBehindOneThatWritesWhatItReads) {
  add(1, 9);
  add(2, 1);
  EXPECT_FALSE(first_may());
}

TEST_F(RunLast, NotBehindAWorkspaceInItsPlace) {
  add(1, 9);
  add(2, 3, 1);
  EXPECT_FALSE(first_may());
}

}  // namespace
}  // namespace prun::cuda
