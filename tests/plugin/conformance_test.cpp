// `prun plugins check` on good plugins and on every kind of bad one: each verdict lies on the right check.
#include "plugin_check/conformance.hpp"

#include "plugin_check/kind_checks.hpp"
#include "plugin_fixtures.hpp"

namespace prun::test::conformance_test {
namespace {

constexpr int check_count = 12;

class Conformance : public testing::Test {
 protected:
  std::vector<ContractCheck> check(const std::string& file,
                                   std::chrono::milliseconds limit = std::chrono::minutes(4)) {
    const std::filesystem::path path = test::copy_fixture(file, folder_.path());
    return check_plugin(path, defaults_, limit, kind_checks({{PRUN_TEST_PLUGINS, "the build"}}));
  }

  test::TempFolder folder_;
  DefaultOptionsFor defaults_ = [](const PluginNote& note) {
    auto section = std::make_shared<Section>();
    section->integers["layers"] = 12;
    DefaultOptions options{section->api(), section, {}};
    if (note.name == "picky") options.required = {"path"};
    return options;
  };
};

// The numbers of the failed checks, and that everything else has the verdict it should.
std::vector<int> failed(const std::vector<ContractCheck>& checks) {
  std::vector<int> numbers;
  for (const ContractCheck& check : checks)
    if (check.verdict == CheckVerdict::failed) numbers.push_back(check.number);
  return numbers;
}

TEST_F(Conformance, AGoodPluginPassesEverything) {
  const auto checks = check("libprun_model_good.so");
  ASSERT_EQ(checks.size(), static_cast<std::size_t>(check_count) + 3);  // of models, of which it is none
  for (int i = 0; i < check_count; ++i) {
    EXPECT_EQ(checks[i].number, i + 1);
    EXPECT_EQ(checks[i].verdict, CheckVerdict::passed) << to_text(checks[i]);
  }
  EXPECT_TRUE(conforms(checks));
  EXPECT_EQ(to_text(checks[5]), "PRUN-PLG-006  passed   exports prun_plugin_v1 and nothing else");
}

TEST_F(Conformance, ACleanRefusalOfARequiredOptionPasses) {
  const auto checks = check("libprun_data_picky.so");
  EXPECT_TRUE(conforms(checks)) << report(checks);
  EXPECT_EQ(checks[9].verdict, CheckVerdict::passed);
  EXPECT_TRUE(holds(checks[9].detail, "refused cleanly: data plugin 'picky': option 'path' has no value"));
  EXPECT_EQ(checks[10].verdict, CheckVerdict::not_run);
}

TEST_F(Conformance, ARefusalOfDefaultsFails) {
  defaults_ = [](const PluginNote&) {
    auto section = std::make_shared<Section>();
    section->integers["layers"] = 13;
    return DefaultOptions{section->api(), section, {}};
  };
  const auto checks = check("libprun_model_good.so");
  EXPECT_EQ(failed(checks), std::vector<int>{10}) << report(checks);
  EXPECT_TRUE(holds(checks[9].detail, "13 layers bring bad luck"));
}

TEST_F(Conformance, AScheduleIsTriedOnAllSmallShapes) {
  const auto checks = check("libprun_schedule_turns.so");
  ASSERT_EQ(checks.size(), static_cast<std::size_t>(check_count) + 1);
  EXPECT_TRUE(conforms(checks)) << report(checks);
  EXPECT_EQ(to_text(checks[12]),
            "PRUN-PLG-013  passed   gives every small shape it accepts an order that is complete and ends: "
            "48 of 192 small shapes");
}

TEST_F(Conformance, AScheduleThatDoesNotEndFails) {
  const auto checks = check("libprun_schedule_stuck.so");
  EXPECT_EQ(failed(checks), std::vector<int>{13}) << report(checks);
  EXPECT_TRUE(
      holds(checks[12].detail,
            "schedule 'stuck' (2 ranks, 2 microbatches, 1 chunk): rank 0: call 1, backward of chunk 0, "
            "microbatch 0, waits forever for the backward of stage 1"));
}

TEST_F(Conformance, AScheduleThatChangesItsMindFails) {
  const auto checks = check("libprun_schedule_fickle.so");
  EXPECT_EQ(failed(checks), std::vector<int>{13}) << report(checks);
  EXPECT_TRUE(holds(checks[12].detail, "it returned another order the second time"));
}

TEST_F(Conformance, AScheduleThatRefusesAllShapesFails) {
  const auto checks = check("libprun_schedule_lazy.so");
  EXPECT_EQ(failed(checks), std::vector<int>{13}) << report(checks);
  EXPECT_TRUE(holds(checks[12].detail, "'lazy' refuses all of the 192 shapes of up to 4 ranks"));
}

TEST_F(Conformance, AScheduleWithoutItsTraitFails) {
  const auto checks = check("libprun_schedule_silent.so");
  EXPECT_EQ(failed(checks), std::vector<int>{5}) << report(checks);
  EXPECT_TRUE(holds(checks[4].detail, "it lacks the trait backward, which must be one of whole, split"));
}

TEST_F(Conformance, AnUnknownTraitFails) {
  const auto checks = check("libprun_strategy_misspelt.so");
  EXPECT_EQ(failed(checks), std::vector<int>{5}) << report(checks);
  EXPECT_TRUE(holds(checks[4].detail, "it states an unknown trait 'conflict'; did you mean 'conflicts'?"));
}

TEST_F(Conformance, ACrashIsAVerdictThatNamesTheSignal) {
  const auto checks = check("libprun_observer_crashes.so");
  EXPECT_EQ(failed(checks), std::vector<int>{10}) << report(checks);
  EXPECT_TRUE(holds(checks[9].detail, "the plugin crashed with SIGSEGV"));
  EXPECT_EQ(checks[11].verdict, CheckVerdict::not_run);
}

TEST_F(Conformance, ACrashWhileLoadingIsAVerdict) {
  const auto checks = check("libprun_model_crashes_on_load.so");
  EXPECT_EQ(failed(checks), (std::vector<int>{7, 8})) << report(checks);
  EXPECT_TRUE(holds(checks[6].detail, "does not refer to prun_sdk_epoch_10_itanium_libstdcxx11"));
  EXPECT_TRUE(holds(checks[7].detail, "the plugin crashed with SIGABRT"));
}

TEST_F(Conformance, AnExitIsAVerdict) {
  const auto checks = check("libprun_observer_exits.so");
  EXPECT_EQ(failed(checks), std::vector<int>{10}) << report(checks);
  EXPECT_TRUE(holds(checks[9].detail, "ended the process itself with exit status 0"));
}

TEST_F(Conformance, AHangIsAVerdict) {
  const auto checks = check("libprun_observer_hangs.so", std::chrono::seconds(5));
  EXPECT_EQ(failed(checks), std::vector<int>{10}) << report(checks);
  EXPECT_TRUE(holds(checks[9].detail, "took longer than 5000 ms"));
}

TEST_F(Conformance, AThrownNumberIsNoCleanError) {
  const auto checks = check("libprun_observer_throws.so");
  EXPECT_EQ(failed(checks), (std::vector<int>{10, 12})) << report(checks);
}

TEST_F(Conformance, ASecondExportFails) {
  const auto checks = check("libprun_model_two_exports.so");
  const auto numbers = failed(checks);
  EXPECT_EQ(numbers, std::vector<int>{6}) << report(checks);
  EXPECT_TRUE(holds(checks[5].detail, "stray_function"));
}

TEST_F(Conformance, MissingSymbolsFailInTheFileAndInTheLoader) {
  const auto checks = check("libprun_model_missing_symbol.so");
  EXPECT_EQ(failed(checks), (std::vector<int>{7, 8})) << report(checks);
  EXPECT_TRUE(holds(checks[6].detail, "it expects _ZN4prun15inside_the_coreEv"));
  EXPECT_TRUE(holds(checks[7].detail, "undefined symbol"));
  EXPECT_EQ(checks[8].verdict, CheckVerdict::not_run);
}

TEST_F(Conformance, AnotherEpochFailsWithoutRunning) {
  const auto checks = check("libprun_model_wrong_epoch.so");
  EXPECT_EQ(failed(checks), (std::vector<int>{4, 7})) << report(checks);
  EXPECT_EQ(checks[7].verdict, CheckVerdict::not_run);
}

TEST_F(Conformance, AFalseDescriptorFails) {
  const auto checks = check("libprun_model_liar.so");
  EXPECT_EQ(failed(checks), std::vector<int>{9}) << report(checks);
}

TEST_F(Conformance, AFileWithoutANoteFailsTheFirstCheckAlone) {
  const auto checks = check("libprun_model_no_note.so");
  EXPECT_EQ(failed(checks), std::vector<int>{1}) << report(checks);
  EXPECT_FALSE(conforms(checks));
}

TEST_F(Conformance, AWrongNameAndAWritableFileFail) {
  const auto path = test::copy_fixture("libprun_model_good.so", folder_.path() / "other.so");
  ::chmod(path.c_str(), 0777);
  const auto checks = check_plugin(path, defaults_);
  EXPECT_EQ(failed(checks), (std::vector<int>{2, 3})) << report(checks);
}

TEST_F(Conformance, ABrokenSchemaFails) {
  defaults_ = [](const PluginNote&) -> DefaultOptions {
    throw_error(ErrorCode::bad_input, "line 1: there is no type 'itn'");
  };
  const auto checks = check("libprun_model_good.so");
  EXPECT_EQ(failed(checks), std::vector<int>{5}) << report(checks);
  EXPECT_TRUE(holds(checks[4].detail, "no type 'itn'"));
}

TEST(Isolated, BringsBackMoreThanAPipeHolds) {
  const std::string block(300000, 'x');
  const IsolatedResult result = run_isolated([&](const Say& say) { say(block); }, std::chrono::minutes(4));
  EXPECT_TRUE(result.returned);
  EXPECT_EQ(result.output, block);
}

TEST(Isolated, DoesNotWaitForWhatTheChildLeftBehind) {
  constexpr auto limit = std::chrono::minutes(4);
  const auto start = std::chrono::steady_clock::now();
  const IsolatedResult result = run_isolated(
      [](const Say&) {
        if (::fork() == 0) ::sleep(900);
      },
      limit);
  EXPECT_TRUE(result.returned);
  EXPECT_LT(std::chrono::steady_clock::now() - start, limit);
}

}  // namespace
}  // namespace prun::test::conformance_test
