// A gradient that is not finite is named on every rank, whichever rank holds it.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "execute/tensors.hpp"
#include "support/assembly_fixture.hpp"
#include "train/local_ranks.hpp"

namespace prun::test {
namespace {

// Spoils the last gradient that the rank holds some of; returns its parameter's name.
std::string spoil_last_gradient(Trainer& trainer) {
  const Assembly& assembly = trainer.assembly();
  std::string name;
  HeldRun last;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly, id, instance, Kept::gradient, [&](const HeldRun& run) {
      last = run;
      name = assembly.full_name(id, instance);
    });
  });
  const float infinite = std::numeric_limits<float>::infinity();
  trainer.memory().write(last.value, last.instance, last.offset, std::as_bytes(std::span(&infinite, 1)));
  return name;
}

// What two ranks say when the second one's last gradient is not finite, and that gradient's name.
struct Said {
  std::string by[2], spoilt;
};
Said what_ranks_say(const std::string& layout) {
  Said said;
  run_local_ranks(tiny_recipe({"batch.global=8"}, layout), plugins().places(), [&](Trainer& trainer) {
    trainer.step();
    EXPECT_EQ(trainer.non_finite_gradient(), "");
    const std::int64_t rank = trainer.assembly().rank();
    if (rank == 1) said.spoilt = spoil_last_gradient(trainer);
    said.by[rank] = trainer.non_finite_gradient();
  });
  return said;
}

TEST(NonFinite, GradientOfTheSecondStageIsNamed) {
  const Said said = what_ranks_say("[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n");
  EXPECT_EQ(said.by[0], "'" + said.spoilt + "' on rank 1");
  EXPECT_EQ(said.by[1], said.by[0]);
}

TEST(NonFinite, GradientInAnotherRanksPartIsNamed) {
  for (const char* stage : {"1", "2", "3"}) {
    const Said said =
        what_ranks_say(data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = " + stage + "\n");
    EXPECT_EQ(said.by[0], "'" + said.spoilt + "' on rank 1") << "stage " << stage;
    EXPECT_EQ(said.by[1], said.by[0]) << "stage " << stage;
  }
}

TEST(NonFinite, OneRankAloneNamesNoRank) {
  const Assembly assembly(tiny_recipe(), plugins());
  Trainer trainer(assembly, plugins());
  trainer.step();
  const std::string spoilt = spoil_last_gradient(trainer);
  EXPECT_EQ(trainer.non_finite_gradient(), "'" + spoilt + "'");
}

}  // namespace
}  // namespace prun::test
