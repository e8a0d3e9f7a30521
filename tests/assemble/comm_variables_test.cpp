// What a comm plugin's note says of the variables that it reads, for one that the core has never heard of.
#include "train/assemble/host_limits.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/assembly_fixture.hpp"

namespace prun::test::comm_variables_test {
namespace {

Recipe ranks_that(const std::string& comm, int ranks = 2) {
  return tiny_recipe({"comm.default=" + comm}, data_parallel(ranks));
}

TEST(CommVariables, AreThoseOfThePluginsThatTheRecipeNames) {
  EXPECT_EQ(shared_folder_variables(ranks_that("meet"), plugins()),
            std::vector<std::string>{"PRUN_MEET_FOLDER"});
  const auto logs = log_variables(ranks_that("meet"), plugins(), "/runs/first");
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_EQ(logs[0].first, "PRUN_MEET_LOG");
  EXPECT_EQ(logs[0].second, "/runs/first/meet.log");
}

TEST(CommVariables, AreNoneWhereNoneIsStatedOrNobodyMeets) {
  EXPECT_TRUE(shared_folder_variables(ranks_that("meet-async"), plugins()).empty());
  EXPECT_TRUE(log_variables(ranks_that("meet-async"), plugins(), "/runs/first").empty());
  EXPECT_TRUE(shared_folder_variables(tiny_recipe({"comm.default=meet"}), plugins()).empty());
}

TEST(CommVariables, WhatTheUserHasSetIsWhereSharedMemoryIs) {
  EXPECT_EQ(shared_memory_folder(ranks_that("meet"), plugins()), "/dev/shm");
  ASSERT_EQ(::setenv("PRUN_MEET_FOLDER", "/elsewhere", 1), 0);
  EXPECT_EQ(shared_memory_folder(ranks_that("meet"), plugins()), "/elsewhere");
  EXPECT_EQ(shared_memory_folder(ranks_that("meet-async"), plugins()), "/dev/shm");
  ::unsetenv("PRUN_MEET_FOLDER");
}

}  // namespace
}  // namespace prun::test::comm_variables_test
