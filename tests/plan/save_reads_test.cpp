// The saver's queue in plans: every byte that a save reads is waited for by whoever overwrites it first, and
// the proof finds where it is not.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "plan/persistent.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::save_reads_test {
namespace {

const std::vector<std::string> saving = {"run.save_every=1", "batch.micro=1", "comm.default=meet"};

std::string verdict(const Program& program, const Plan& plan) {
  try {
    check_plan(program, plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class SaveReads : public testing::TestWithParam<Layout> {
 protected:
  SaveReads() : assembly(tiny_recipe(with(saving, GetParam().sets), GetParam().text), plugins()) {}
  const Assembly assembly;
};

TEST_P(SaveReads, HaveAllThatLastsOnce) {
  for (const Plan& plan : assembly.plans()) {
    std::vector<PersistentValue> read;
    for (const SaveRead& one : plan.save_reads) read.insert(read.end(), one.begin(), one.end());
    std::sort(read.begin(), read.end());
    EXPECT_EQ(std::adjacent_find(read.begin(), read.end()), read.end());
    EXPECT_EQ(verdict(assembly.program(), plan), "");
  }
  const Plan& plan = assembly.plan();
  for (const HeldSlice& held : assembly.held_slices()) {
    const std::int32_t number = plan.save_read_of({held.value, held.instance});
    if (held.rounded != none) {
      EXPECT_EQ(plan.save_read_of({held.rounded, held.instance}), number);
    }
  }
}

// Each wait is needed, whichever is left out.
TEST_P(SaveReads, TheProofFindsEveryMissingWait) {
  std::size_t waits = 0;
  for (const Plan& made : assembly.plans()) {
    Plan plan = made;
    for (Call& call : plan.calls) {
      if (call.save_read < 0) continue;
      ++waits;
      const std::int32_t read = std::exchange(call.save_read, -1);
      EXPECT_NE(verdict(assembly.program(), plan).find("while another queue may use it"), std::string::npos);
      call.save_read = read - 1;  // one too early
      EXPECT_NE(verdict(assembly.program(), plan), "") << read;
      call.save_read = read;
    }
  }
  EXPECT_GT(waits, 0u);
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all = layouts();
  const auto add = [&](const char* name, const std::string& text, const std::vector<std::string>& sets = {}) {
    all.push_back({name, text, sets});
  };
  const std::vector<std::string> bf16 = {"precision.compute=bf16", "precision.master=split"};
  add("host", offloaded(true, false, true));
  add("host_vertical", offloaded(true, true, true), with(bf16, {"batch.order=breadth_first"}));
  add("host_tiles", updated_here + by_tensor, bf16);
  add("drives", offloaded_to_drives("/tmp"));
  add("drives_alone_vertical", drives_alone("/tmp"), with(bf16, {"batch.order=breadth_first"}));
  add("shares", shared_by_all("/tmp"), {"batch.order=breadth_first"});
  add("zero_drives", data_and_zero + offloaded_to_drives("/tmp"), bf16);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, SaveReads, testing::ValuesIn(all_layouts()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(NoSaveReads, WhereNothingIsSavedOrAllIsCopied) {
  EXPECT_TRUE(Assembly(tiny_recipe(), plugins()).plan().save_reads.empty());
  const Assembly copied(tiny_recipe({"run.save_every=1", "run.save_memory=all"}), plugins());
  EXPECT_TRUE(copied.plan().save_reads.empty());
  for (const Call& call : copied.plan().calls) EXPECT_EQ(call.save_read, -1);
}

}  // namespace
}  // namespace prun::test::save_reads_test
