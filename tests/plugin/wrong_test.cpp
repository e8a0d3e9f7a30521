// Plugins with one mistake each: `prun plugins check` finds it and says which op, operand or call it is in.
#include "assemble/section_options.hpp"
#include "conform/kind_checks.hpp"
#include "plugin/conformance.hpp"
#include "plugin_fixtures.hpp"

namespace prun {
namespace {

using test::holds;

constexpr auto patience = std::chrono::seconds(30);

std::vector<ContractCheck> check(const std::string& file, std::chrono::milliseconds limit = patience) {
  const test::TempFolder folder;
  const auto defaults = [](const PluginNote& note) {
    auto section = std::make_shared<DefaultSection>(parse_schema(note.options, describe(note)));
    return DefaultOptions{options_of(*section), section, section->required()};
  };
  return check_plugin(test::copy_fixture(file, folder.path()), defaults, limit,
                      kind_checks({{PRUN_TEST_PLUGINS, "the build"}}));
}

std::string report(const std::vector<ContractCheck>& checks) {
  std::string text;
  for (const ContractCheck& one : checks) text += to_text(one) + "\n";
  return text;
}

// The first check that fails says this.
void expect_failure(const std::string& file, const std::string& asked, const std::string& why,
                    std::chrono::milliseconds limit = patience) {
  const std::vector<ContractCheck> checks = check(file, limit);
  for (const ContractCheck& one : checks) {
    if (one.verdict != CheckVerdict::failed) continue;
    EXPECT_TRUE(holds(one.text, asked)) << report(checks);
    EXPECT_TRUE(holds(one.detail, why));
    return;
  }
  ADD_FAILURE() << file << " passes:\n" << report(checks);
}

constexpr const char *memory = "read no more than they are given", *threads = "do not depend on threads",
                     *gradients = "agree with finite differences", *marks = "agree with computing in parts";

TEST(WrongPlugin, TheSameOpWithoutAMistakePassesAll) {
  const std::vector<ContractCheck> checks = check("libprun_op_row-scale.so");
  ASSERT_EQ(checks.size(), 16u);
  for (const ContractCheck& one : checks) EXPECT_EQ(one.verdict, CheckVerdict::passed) << report(checks);
  EXPECT_EQ(checks[12].detail, "2 ops");
  EXPECT_EQ(checks[14].detail, "1 op");
}

TEST(WrongPlugin, AnOpOfWhichNothingIsSaidIsNotCheckedRatherThanPassed) {
  const std::vector<ContractCheck> checks = check("libprun_op_reckless.so");
  ASSERT_EQ(checks.size(), 16u);
  for (std::size_t i = 12; i < checks.size(); ++i) {
    EXPECT_EQ(checks[i].verdict, CheckVerdict::not_run) << report(checks);
    EXPECT_TRUE(holds(to_text(checks[i]), "not checked: 'reckless' (no example of it"));
  }
  EXPECT_TRUE(conforms(checks));
}

TEST(WrongPlugin, AGradientWithoutItsFactor) {
  expect_failure("libprun_op_wrong-factor.so", gradients, "op 'row_scale': the gradient of 'gain' is ");
}

TEST(WrongPlugin, ASumThatIsNotMarked) {
  expect_failure("libprun_op_wrong-unmarked.so", marks,
                 "op 'row_scale_grad', operand 'dgain', has not 'rows', and differs between the ranks that "
                 "'rows' is split over; mark the dimension in its rule by s.sum or s.whole");
}

TEST(WrongPlugin, PartialSumsThatDoNotPass) {
  expect_failure("libprun_op_wrong-partial.so", marks, "as a sum over two summands of 'x' and 'gain'");
}

TEST(WrongPlugin, AResultHalfWritten) {
  expect_failure(
      "libprun_op_wrong-half.so", memory,
      "the kernel of op 'row_scale', operand 'y', leaves elements unwritten, or reads what nobody wrote");
}

TEST(WrongPlugin, AWorkspaceOverrunBy64Bytes) {
  expect_failure("libprun_op_wrong-overrun.so", memory,
                 "the kernel of op 'row_scale_grad', with 48 bytes of workspace, writes behind it");
}

TEST(WrongPlugin, AWorkspaceReadBeforeItIsWritten) {
  expect_failure("libprun_op_wrong-stale.so", memory,
                 "the kernel of op 'row_scale_grad', operand 'dgain', leaves");
}

TEST(WrongPlugin, BitsThatDependOnThreads) {
  expect_failure("libprun_op_wrong-threads.so", threads,
                 "the kernel of op 'row_scale_grad', operand 'dgain', gives other bits with ");
}

TEST(WrongPlugin, AKernelThatDoesNotEnd) {
  expect_failure("libprun_op_wrong-hang.so", memory,
                 "the plugin took longer than 1500 ms in the kernel of op 'row_scale' in fp64",
                 std::chrono::milliseconds(1500));
}

TEST(WrongPlugin, ALibraryThatDoesNotLoad) {
  expect_failure("libprun_strategy_hangs_on_load.so", "loads", "the plugin took longer than 1500 ms",
                 std::chrono::milliseconds(1500));
}

TEST(WrongPlugin, AStrategyWhoseProgramIsBroken) {
  expect_failure("libprun_strategy_erases.so", "as one rank computes them",
                 "gpt: program: segment 'block', forward, op 'layernorm', operand 'x'");
}

TEST(WrongPlugin, AStrategyThatDoesNotComeBack) {
  expect_failure("libprun_strategy_hangs-in-apply.so", "as one rank computes them",
                 "the plugin took longer than 1500 ms in gpt", std::chrono::milliseconds(1500));
}

TEST(WrongPlugin, SamplesThatDependOnWhatWasReadBefore) {
  expect_failure("libprun_data_fickle-data.so", "the same sample for the same number",
                 "is another one when it is read again");
}

TEST(WrongPlugin, SamplesThatAreNotWhole) {
  expect_failure("libprun_data_short-data.so", "the same sample for the same number",
                 "is another one when it is read again");
}

TEST(WrongPlugin, AnOptimizerThatIsNeverMasked) {
  expect_failure("libprun_optimizer_keeps_nothing.so", "nothing where it is told to keep",
                 "an update changes something though `keep` is 0");
}

TEST(WrongPlugin, AnObserverThatDoesNotComeBack) {
  expect_failure("libprun_observer_hangs-in-step.so", "survives all that it may be told",
                 "the plugin took longer than 1500 ms in step()", std::chrono::milliseconds(1500));
}

TEST(WrongPlugin, AnObserverThatWantsFiniteLosses) {
  expect_failure("libprun_observer_delicate.so", "survives all that it may be told", "a loss of nan");
}

}  // namespace
}  // namespace prun
