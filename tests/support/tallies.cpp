#include "support/tallies.hpp"

#include <gtest/gtest.h>

#include <mutex>

#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test {

std::vector<StepTally> tallies_of(const Recipe& recipe, int steps, const std::string& ending) {
  std::mutex mutex;
  std::vector<std::vector<StepTally>> by_rank;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<StepTally> own;
    for (int i = 0; i < steps; ++i)
      for (StepTally& tally : trainer.step().tallies)
        if (tally.name.ends_with(ending)) own.push_back(std::move(tally));
    const std::lock_guard lock(mutex);
    by_rank.push_back(std::move(own));
  });
  for (const std::vector<StepTally>& own : by_rank) expect_same(own, by_rank.front(), "another rank");
  return by_rank.front();
}

void expect_same(const std::vector<StepTally>& there, const std::vector<StepTally>& alone,
                 const std::string& layout) {
  ASSERT_EQ(there.size(), alone.size()) << layout;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(there[i].name, alone[i].name) << layout;
    EXPECT_EQ(there[i].numbers, alone[i].numbers) << layout;
  }
}

}  // namespace prun::test
