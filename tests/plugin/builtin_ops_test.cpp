// prun's own ops pass what is asked of a third party's.
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "conform/op_checks.hpp"
#include "conform/tiny_recipe.hpp"
#include "conform/weigh.hpp"
#include "explain/builtin_examples.hpp"

namespace prun {
namespace {

class BuiltinOps : public testing::Test {
 protected:
  OpsOnTrial trial() const {
    OpsOnTrial trial{std::make_shared<OpRegistry>(), builtin_ops(), builtin_examples(),
                     with_weigh_kernels(cpu_.kernels()), [](std::string_view) {}};
    add_weigh_ops(*trial.registry);
    return trial;
  }

 private:
  const CpuKernels cpu_{{{PRUN_TEST_PLUGINS, "the build"}}};
};

TEST_F(BuiltinOps, KeepToTheirMemory) { EXPECT_TRUE(check_memory(trial()).checked); }
TEST_F(BuiltinOps, GiveTheSameBitsOnAnyThreads) { EXPECT_TRUE(check_threads(trial()).checked); }
TEST_F(BuiltinOps, AreMarkedAsTheyAre) { EXPECT_TRUE(check_marks(trial()).checked); }

TEST_F(BuiltinOps, HaveGradientsAndExamplesOfThem) {
  const CheckFinding finding = check_gradients(trial());
  EXPECT_EQ(finding.detail, "15 ops; not checked: 'cast' (no example of it)");
}

}  // namespace
}  // namespace prun
