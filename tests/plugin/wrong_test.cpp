// Plugins with one mistake each: `prun plugins check` finds it and says which op, operand or call it is in.
#include "plugin_check/conformance.hpp"
#include "plugin_check/kind_checks.hpp"
#include "plugin_check/tiny_recipe.hpp"
#include "plugin_fixtures.hpp"

namespace prun::test::wrong_test {
namespace {

constexpr auto patience = std::chrono::minutes(4);
// Of those that never come back: longer than one that does may have to wait for a core.
constexpr auto until_it_hangs = std::chrono::seconds(5);

// `beside`: a plugin in the same folder.
std::vector<ContractCheck> check(const std::string& file, std::chrono::milliseconds limit = patience,
                                 const std::string& options = "", const std::string& beside = "") {
  const test::TempFolder folder;
  if (!beside.empty()) test::copy_fixture(beside, folder.path());
  const auto given = [&](const PluginNote& note) { return default_options(trial_schema(note, options)); };
  return check_plugin(test::copy_fixture(file, folder.path()), given, limit,
                      kind_checks({{PRUN_TEST_PLUGINS, "the build"}}, options));
}

// The first check that fails says this.
void expect_failure(const std::string& file, const std::string& asked, const std::string& why,
                    std::chrono::milliseconds limit = patience, const std::string& beside = "") {
  const std::vector<ContractCheck> checks = check(file, limit, "", beside);
  for (const ContractCheck& one : checks) {
    if (one.verdict != CheckVerdict::failed) continue;
    EXPECT_TRUE(holds(one.text, asked)) << report(checks);
    EXPECT_TRUE(holds(one.detail, why));
    return;
  }
  ADD_FAILURE() << file << " passes:\n" << report(checks);
}

void expect_all_passed(const std::vector<ContractCheck>& checks) {
  for (const ContractCheck& one : checks) EXPECT_EQ(one.verdict, CheckVerdict::passed) << report(checks);
}

constexpr const char *memory = "read no more than they are given", *threads = "do not depend on threads",
                     *gradients = "agree with finite differences", *marks = "agree with computing in parts";

TEST(WrongPlugin, TheSameOpWithoutAMistakePassesAll) {
  const std::vector<ContractCheck> checks = check("libprun_op_row-scale.so");
  ASSERT_EQ(checks.size(), 17u);
  expect_all_passed(checks);
  EXPECT_EQ(checks[12].detail, "2 ops");
  EXPECT_EQ(checks[14].detail, "1 op");
}

TEST(WrongPlugin, AnOpOfWhichNothingIsSaidIsNotCheckedRatherThanPassed) {
  const std::vector<ContractCheck> checks = check("libprun_op_reckless.so");
  ASSERT_EQ(checks.size(), 17u);
  for (std::size_t i = 12; i < 16; ++i) {
    EXPECT_EQ(checks[i].verdict, CheckVerdict::not_run) << report(checks);
    EXPECT_TRUE(holds(to_text(checks[i]), "not checked: 'reckless' (no example of it"));
  }
  EXPECT_TRUE(conforms(checks));
  EXPECT_EQ(not_run(checks), "PRUN-PLG-013, PRUN-PLG-014, PRUN-PLG-015, PRUN-PLG-016");
}

TEST(WrongPlugin, AGradientWithoutItsFactor) {
  expect_failure("libprun_op_wrong-factor.so", gradients, "op 'row_scale': the gradient of 'gain' is ");
}

// Of rows as wide as its example's it is right.
TEST(WrongPlugin, AGradientOfWideRows) {
  expect_failure("libprun_op_wrong-wide.so", gradients, ", with rows of 2051");
}

TEST(WrongPlugin, ASumThatIsNotMarked) {
  expect_failure("libprun_op_wrong-unmarked.so", marks,
                 "op 'row_scale_grad', operand 'dgain', has not 'rows', and differs between the ranks that "
                 "'rows' is split over; mark the dimension in its rule by s.sum or s.whole");
}

TEST(WrongPlugin, PartialSumsThatDoNotPass) {
  expect_failure("libprun_op_wrong-partial.so", marks, "as a sum over two summands of 'x' and 'gain'");
}

TEST(WrongPlugin, AnOrderThatCounts) {
  expect_failure("libprun_op_wrong-order.so", marks, "with the halves of 'seq' exchanged, and ");
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
                 "the plugin took longer than 5000 ms in the kernel of op 'row_scale' in fp64",
                 until_it_hangs);
}

TEST(WrongPlugin, ALibraryThatDoesNotLoad) {
  expect_failure("libprun_strategy_hangs_on_load.so", "loads", "the plugin took longer than 5000 ms",
                 until_it_hangs);
}

TEST(WrongPlugin, AStrategyWhoseProgramIsBroken) {
  expect_failure("libprun_strategy_erases.so", "as one rank computes them",
                 "gpt: program: segment 'block', forward, op 'layernorm', operand 'x'");
}

TEST(WrongPlugin, AStrategyIsNotTriedWithWhatItConflictsWith) {
  const std::vector<ContractCheck> checks = check("libprun_strategy_without-zero.so");
  expect_all_passed(checks);
  EXPECT_TRUE(holds(checks.back().detail, "gpt on 2 ranks, ")) << report(checks);
  EXPECT_TRUE(holds(checks.back().detail, "cannot combine strategy 'without-zero' with 'zero'"))
      << report(checks);
}

TEST(WrongPlugin, AStrategyIsTriedInTheRecipeGiven) {
  const auto check_in = [](const std::string& strategies) {
    const test::TempFolder folder;
    const std::filesystem::path text = folder.path() / "text.txt", recipe = folder.path() / "given.toml";
    std::string letters;
    for (int i = 0; i < 4096; ++i) letters += static_cast<char>('a' + i * i % 26);
    test::write_file(text, letters);
    test::write_file(recipe,
                     "[run]\nname = 'given'\nsteps = 1\n[precision]\ncompute = 'fp64'\nstate = 'fp64'\n"
                     "[model]\nplugin = 'gpt'\nlayers = 1\nhidden = 16\nheads = 2\nseq = 16\nvocab = 256\n"
                     "[data]\nplugin = 'text'\npath = '" +
                         text.string() +
                         "'\n[batch]\nglobal = 4\nmicro = 1\n[optimizer]\nplugin = 'sgd'\nlr = 1e-3\n"
                         "[device]\nplugin = 'cpu'\n[mesh]\ndp = 2\n"
                         "[[strategy]]\nplugin = 'data'\naxis = 'dp'\n" +
                         strategies);
    return check_plugin(
        test::copy_fixture("libprun_strategy_without-zero.so", folder.path()),
        [](const PluginNote& note) { return default_options(trial_schema(note, "")); }, patience,
        kind_checks({{PRUN_TEST_PLUGINS, "the build"}}, "", recipe));
  };
  const std::vector<ContractCheck> named = check_in("[[strategy]]\nplugin = \"without-zero\"\n");
  expect_all_passed(named);
  EXPECT_TRUE(holds(named.back().detail, "given.toml on 2 ranks")) << report(named);
  const std::vector<ContractCheck> missing = check_in("");
  EXPECT_EQ(missing.back().verdict, CheckVerdict::failed);
  EXPECT_TRUE(holds(missing.back().detail, "does not name the strategy 'without-zero'")) << report(missing);
}

TEST(WrongPlugin, AStrategyThatDoesNotComeBack) {
  expect_failure("libprun_strategy_hangs-in-apply.so", "as one rank computes them",
                 "the plugin took longer than 5000 ms in gpt", until_it_hangs);
}

TEST(WrongPlugin, SamplesThatDependOnWhatWasReadBefore) {
  expect_failure("libprun_data_fickle-data.so", "the same sample for the same number",
                 "is another one when it is read again");
}

TEST(WrongPlugin, ATokenBeyondTheVocabularyInOneSample) {
  expect_failure("libprun_data_beyond-data.so", "within its vocabulary",
                 "sample 41 has 256 in place 5, and open() says that the vocabulary is 256");
}

TEST(WrongPlugin, ARoleThatHasNoName) {
  expect_failure("libprun_data_roles-data.so", "the same sample for the same number",
                 "is of role 2, and the trait `roles` names 2");
}

TEST(WrongPlugin, SamplesThatAreNotWhole) {
  expect_failure("libprun_data_short-data.so", "the same sample for the same number",
                 "is another one when it is read again");
}

// It is tried with the op where that is found, and nobody takes it for tried where it is not.
TEST(WrongPlugin, AnOptimizerWhoseOpLiesInAnotherPlugin) {
  const test::TempFolder folder, ops;
  const auto checked = [&] {
    return check_plugin(
        folder.path() / "libprun_optimizer_own_step.so",
        [](const PluginNote& note) { return default_options(trial_schema(note, "")); }, patience,
        kind_checks({{PRUN_TEST_PLUGINS, "the build"}, {ops.path(), "--plugin-path"}}));
  };
  test::copy_fixture("libprun_optimizer_own_step.so", folder.path());
  const std::vector<ContractCheck> without = checked();
  EXPECT_FALSE(conforms(without) && not_run(without).empty()) << report(without);
  std::filesystem::copy(test::fixtures() / "ops", ops.path());
  expect_all_passed(checked());
}

TEST(WrongPlugin, AnOptimizerThatIsNeverMasked) {
  expect_failure("libprun_optimizer_keeps_nothing.so", "nothing where it is told to keep",
                 "an update changes something though `keep` is 0");
}

TEST(WrongPlugin, AnOptimizerThatDoesNotClip) {
  expect_failure(
      "libprun_optimizer_clips_nothing.so", "nothing where it is told to keep",
      "an update of gradients that are four times as large, with `clip` 0.25, gives other numbers");
}

TEST(WrongPlugin, AScheduleThatIsWrongFromNineMicrobatchesOn) {
  expect_failure("libprun_schedule_forgetful.so", "an order that is complete", "9 microbatches");
}

TEST(WrongPlugin, ATierThatSpoilsABitNowAndThen) {
  expect_failure("libprun_device_wrong-tier.so", "gives memory, queues and kernels",
                 " of 16384 bytes is read back as other bytes");
}

TEST(WrongPlugin, AnObserverThatDoesNotComeBack) {
  expect_failure("libprun_observer_hangs-in-step.so", "survives all that it may be told",
                 "the plugin took longer than 5000 ms in step()", until_it_hangs);
}

TEST(WrongPlugin, AnObserverThatWantsFiniteLosses) {
  expect_failure("libprun_observer_delicate.so", "survives all that it may be told", "a loss of nan");
}

// ---------------------------------------------------------------- kernels of devices

constexpr const char *elsewhere = "kernels for other devices",
                     *of_device = "what those of the device 'cpu' do";

TEST(WrongPlugin, KernelsForADeviceThatIsHere) {
  const std::vector<ContractCheck> checks =
      check("libprun_op_row-scale-there.so", patience, "", "libprun_device_host-side.so");
  EXPECT_TRUE(conforms(checks)) << report(checks);
  EXPECT_EQ(checks.back().detail, "host-side: 1 op") << report(checks);
}

TEST(WrongPlugin, AKernelForADeviceThatIsWrongThere) {
  expect_failure("libprun_op_wrong-there.so", elsewhere, "the kernel of op 'row_scale', operand 'y', gives ",
                 patience, "libprun_device_host-side.so");
}

TEST(WrongPlugin, KernelsForADeviceThatIsNotHereAreNotChecked) {
  const std::vector<ContractCheck> checks = check("libprun_op_wrong-there.so");
  EXPECT_EQ(checks.back().verdict, CheckVerdict::not_run);
  EXPECT_EQ(checks.back().detail,
            "not checked: kernels for 'host-side', since there is no device plugin of that kind");
}

TEST(WrongPlugin, ADeviceWithoutAMistakePassesAll) {
  const std::vector<ContractCheck> checks = check("libprun_device_host-side.so");
  ASSERT_EQ(checks.size(), 14u);
  expect_all_passed(checks);
}

TEST(WrongPlugin, ADeviceWithAWrongKernel) {
  expect_failure("libprun_device_wrong-add.so", of_device, "the kernel of op 'add', operand 'y', gives ");
}

TEST(WrongPlugin, ADeviceWhoseKernelAddsToWhatItShouldWrite) {
  expect_failure("libprun_device_wrong-onto.so", of_device, "nan in element 0");
}

TEST(WrongPlugin, ADeviceWhoseKernelDoesNotBeginASumAsItSays) {
  expect_failure("libprun_device_wrong-begins.so", of_device,
                 "as it begins the sum (writes_first), and the CPU");
}

TEST(WrongPlugin, TheDeviceCpuPassesAll) {
  const std::vector<ContractCheck> checks = check_plugin(
      PRUN_TEST_PLUGINS "/libprun_device_cpu.so",
      [](const PluginNote& note) { return default_options(trial_schema(note, "")); }, patience,
      kind_checks({{PRUN_TEST_PLUGINS, "the build"}}));
  expect_all_passed(checks);
}

TEST(WrongPlugin, ATierPassesWithAFolderGiven) {
  const std::string tier = PRUN_TEST_PLUGINS "/libprun_device_nvme.so";
  if (!std::filesystem::exists(tier)) GTEST_SKIP() << "built without liburing";
  const test::TempFolder folder;
  const std::string options = "paths = [\"" + folder.path().string() + "\"]";
  const std::vector<ContractCheck> checks = check_plugin(
      tier, [&](const PluginNote& note) { return default_options(trial_schema(note, options)); }, patience,
      kind_checks({{PRUN_TEST_PLUGINS, "the build"}}, options));
  expect_all_passed(checks);
  EXPECT_EQ(checks[12].detail, "1 of prun's ops have kernels");
  EXPECT_EQ(checks[13].detail, "a tier computes nothing");
}

// ---------------------------------------------------------------- models

constexpr const char *program = "writes the same program each time",
                     *of_loss = "finite differences of its loss", *ends = "with each option at its ends";

TEST(WrongPlugin, TheSameModelWithoutAMistakePassesAll) {
  const std::vector<ContractCheck> checks = check("libprun_model_two-segments.so");
  ASSERT_EQ(checks.size(), 15u);
  expect_all_passed(checks);
  EXPECT_EQ(checks[12].detail, "2 parameters of 131072 elements in 2 segments");
  EXPECT_EQ(checks[13].detail, "2 parameters, a segment of each kind");
  EXPECT_EQ(checks[14].detail, "10 values built, 0 refused");
}

TEST(WrongPlugin, AModelsParameterThatNobodyUses) {
  expect_failure("libprun_model_wrong-unused.so", program, "parameter 'spare' is used by no op");
}

TEST(WrongPlugin, AModelsParameterThatDoesNotReachTheLoss) {
  expect_failure("libprun_model_wrong-detached.so", program,
                 "parameter 'head.detached' does not reach the loss");
}

TEST(WrongPlugin, AModelThatIsAnotherOneTheNextTime) {
  expect_failure("libprun_model_wrong-fickle.so", program,
                 "build() writes another program when it is called again");
}

TEST(WrongPlugin, AnAttributeThatDiffersByProcess) {
  expect_failure("libprun_strategy_differs.so", "as one rank computes them",
                 "apply() writes another program in another process");
  expect_failure("libprun_optimizer_differs.so", "nothing where it is told to keep",
                 "update() writes another program in another process");
}

TEST(WrongPlugin, AModelThatIsAnotherOneInAnotherProcess) {
  expect_failure("libprun_model_wrong-process.so", program,
                 "build() writes another program in another process");
}

TEST(WrongPlugin, AModelWhoseOpHasAWrongGradient) {
  expect_failure("libprun_model_wrong-own_op.so", of_loss, "the gradient of 'head.gain' is ", patience,
                 "libprun_op_wrong-factor.so");
}

TEST(WrongPlugin, AModelThatDividesByAnOption) {
  expect_failure("libprun_model_wrong-divide.so", ends,
                 "the plugin crashed with SIGFPE (Floating point exception) in parts = 0");
}

TEST(WrongPlugin, AModelThatSlipsOverAnOption) {
  expect_failure("libprun_model_wrong-slip.so", ends,
                 "strange = true: model plugin 'wrong-slip': there is no such thing");
}

TEST(WrongPlugin, AModelThatIsNeverWritten) {
  expect_failure("libprun_model_wrong-hang.so", program, "the plugin took longer than 5000 ms in build()",
                 until_it_hangs);
}

TEST(WrongPlugin, BuiltInModelsPassAll) {
  for (const char* const model : {"gpt", "llama"}) {
    const std::vector<ContractCheck> checks = check_plugin(
        PRUN_TEST_PLUGINS "/libprun_model_" + std::string(model) + ".so",
        [](const PluginNote& note) { return default_options(trial_schema(note, "")); }, patience,
        kind_checks({{PRUN_TEST_PLUGINS, "the build"}}));
    expect_all_passed(checks);
  }
}

// ---------------------------------------------------------------- comm plugins

constexpr const char *exchanges = "does every exchange of two and three ranks", *lets_go = "lets a rank go";

TEST(WrongPlugin, TheSameCommPluginWithoutAMistakePassesAll) {
  const std::vector<ContractCheck> checks = check("libprun_comm_threads-meet.so");
  ASSERT_EQ(checks.size(), 14u);
  expect_all_passed(checks);
}

TEST(WrongPlugin, ASumThatForgetsTheLastOfAnOddNumber) {
  expect_failure("libprun_comm_wrong-odd.so", exchanges,
                 "all_reduce (sum) of 1 x fp64 among 2 ranks: gives a wrong result on rank ");
}

TEST(WrongPlugin, AnExchangeThatWritesBesideItsResult) {
  expect_failure("libprun_comm_wrong-beside.so", exchanges,
                 "all_to_all of 0 x fp64 among 2 ranks: writes beside its result on rank 0");
}

TEST(WrongPlugin, BytesThatAreNotThoseThatWerePlanned) {
  expect_failure("libprun_comm_wrong-miscount.so", exchanges,
                 "all_reduce (sum) of 0 x fp64 among 2 ranks: rank ");
}

TEST(WrongPlugin, TwoReceivesOfOneSizeThatAreSwapped) {
  expect_failure("libprun_comm_wrong-swapped.so", exchanges, "two of send and recv at once among ");
}

TEST(WrongPlugin, ACommPluginThatWaitsThoughItIsAborted) {
  expect_failure(
      "libprun_comm_wrong-deaf.so", lets_go,
      "the plugin took longer than 5000 ms in start() and finish() of a rank that waits for another, after "
      "abort()",
      until_it_hangs);
}

// ---------------------------------------------------------------- options

TEST(PluginOptions, AreGivenWhereThereIsNoDefault) {
  const std::string required = "libprun_data_picky.so";
  std::vector<ContractCheck> checks = check(required);
  EXPECT_TRUE(holds(checks.back().detail, "not checked: it has no default for "));
  EXPECT_TRUE(holds(checks.back().detail, "; give that by --options")) << report(checks);
  checks = check(required, patience, "nonsense = 1");
  EXPECT_TRUE(holds(report(checks), "has no option 'nonsense'"));
}

TEST(PluginOptions, ReachThePlugin) {
  const std::vector<ContractCheck> checks =
      check("libprun_model_two-segments.so", patience, "vocab = 24\nhidden = 3");
  EXPECT_TRUE(holds(checks[12].detail, "2 parameters of 144 elements")) << report(checks);
}

}  // namespace
}  // namespace prun::test::wrong_test
