// Ranks that have a GPU together.
#include "sharers.hpp"

#include <gtest/gtest.h>

namespace prun::test {
namespace {

TEST(Sharers, AreThoseWhoseNumberIsTheSameGpus) {
  for (int gpus = 1; gpus <= 4; ++gpus)
    for (int ranks = 1; ranks <= 9; ++ranks) {
      int of_first = 0;
      for (int rank = 0; rank < ranks; ++rank) of_first += rank % gpus == 0;
      EXPECT_EQ(cuda::sharers_of(ranks, gpus, false), of_first) << ranks << " on " << gpus;
      EXPECT_EQ(cuda::sharers_of(ranks, gpus, true), ranks) << "all on the one that is named";
    }
}

// Costs are kept by the name: those of a shared GPU must not stand for those of a whole one.
TEST(Sharers, StandInTheNameThatCostsAreKeptBy) {
  EXPECT_EQ(cuda::name_of("NVIDIA H200", 1), "NVIDIA H200");
  EXPECT_EQ(cuda::name_of("NVIDIA H200", 4), "NVIDIA H200 shared by 4 ranks");
}

}  // namespace
}  // namespace prun::test
