// What a user reads when a plugin goes wrong: whose fault it is, where, and never a quiet success.
#include "cli/binary.hpp"
#include "plugin_fixtures.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

class GuardedPlugin : public testing::Test {
 protected:
  // The tiny recipe on a device, with `more` behind it, under a verb, with the fixtures at hand.
  Result run(const std::string& verb, const std::string& more, const std::vector<std::string>& sets = {},
             const std::string& device = "cpu") {
    const std::filesystem::path file = folder_.path() / "recipe.toml", out = folder_.path() / "out";
    write_file(
        file,
        tiny_recipe({"run.steps=3", "run.out=" + out.string(), "device.plugin=" + device}).resolved_toml() +
            more);
    std::vector<std::string> words = {verb, file.string(), "--plugin-path", fixtures().string()};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return prun(words);
  }
  Result act(const std::string& how, const std::string& verb = "check") {
    return run(verb, "[[strategy]]\nplugin = \"acts\"\nhow = \"" + how + "\"\n");
  }
  Result reckless(const std::string& how, const std::string& verb = "run") {
    return run(verb, "[[strategy]]\nplugin = \"acts\"\n[op.reckless]\nhow = \"" + how + "\"\n",
               {"plugins.ops=reckless", "run.poison=true"});
  }

  TempFolder folder_;
};

// ---------------------------------------------------------------- the process ends in a plugin

TEST_F(GuardedPlugin, AnExitIsNoQuietSuccess) {
  const Result in_apply = act("exit");
  EXPECT_EQ(in_apply.code, 1) << in_apply.out;
  EXPECT_TRUE(holds(in_apply.out, "prun: strategy plugin 'acts' ended prun with exit() in apply(); "));
  const Result when_created = act("exit_when_created");
  EXPECT_EQ(when_created.code, 1) << when_created.out;
  EXPECT_TRUE(holds(when_created.out, "'acts' ended prun with exit() while its object was created"));
  const Result in_thread = act("exit_in_thread");
  EXPECT_EQ(in_thread.code, 1) << in_thread.out;
  EXPECT_TRUE(holds(in_thread.out, "a library or a thread of a plugin ended prun with exit()"));
}

TEST_F(GuardedPlugin, ACrashNamesPluginAndPlace) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer reports the crash itself";
#endif
  const Result crash = act("crash"), abort = act("abort");
  EXPECT_NE(crash.code, 0);
  EXPECT_TRUE(holds(crash.out, "prun: strategy plugin 'acts' ended prun with SIGSEGV in apply(); "));
  EXPECT_NE(abort.code, 0);
  EXPECT_TRUE(holds(abort.out, "prun: strategy plugin 'acts' ended prun with SIGABRT in apply(); "));
}

TEST_F(GuardedPlugin, AnExceptionThatNobodyCatchesIsNamed) {
  const Result lost = act("terminate");
  EXPECT_NE(lost.code, 0);
  EXPECT_TRUE(holds(lost.out, "'acts' ended prun with an exception that nobody catches: lost in apply(); "));
  const Result unloadable = run("check", "[[strategy]]\nplugin = \"unloadable\"\n");
  EXPECT_NE(unloadable.code, 0);
  EXPECT_TRUE(holds(unloadable.out, "unloadable")) << unloadable.out;
  EXPECT_TRUE(holds(unloadable.out, "not in this process")) << unloadable.out;
}

TEST_F(GuardedPlugin, ManyRanksEndAsOneDoes) {
  const Result result =
      run("run", data_parallel(2) + "[[strategy]]\nplugin = \"acts\"\nhow = \"exit\"\n", {"batch.global=8"});
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(holds(result.out, "strategy plugin 'acts' ended prun with exit() in apply()"));
}

// ---------------------------------------------------------------- errors and lines

// The first line of an error about a recipe, without the place: what was said.
std::string placed(const std::string& text) {
  const std::size_t at = std::min(text.find("error: "), text.size());
  return text.substr(at, text.find('\n', at) - at);
}

TEST_F(GuardedPlugin, ErrorsCarryKindAndName) {
  const Result result = act("throw");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(placed(result.out), "error: strategy plugin 'acts': out of ideas");
  EXPECT_TRUE(holds(result.out, " | plugin = \"acts\"\n"));
  const Result model = run("check", "", {"model.hidden=30"});
  EXPECT_EQ(model.code, 2);
  EXPECT_TRUE(holds(model.out, "prun: --set model.hidden=30: error: model plugin 'gpt': "));
  EXPECT_TRUE(holds(model.out, "   |       ^~~~~~~~~~~~\n"));
}

TEST_F(GuardedPlugin, AMisusedOpIsToldWithoutAPathOfOurs) {
  const Result result = act("misshape");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(placed(result.out),
            "error: strategy plugin 'acts': segment 'block', op 'rope': rope takes [batch, seq, heads, "
            "packed, head_dim] with an even head_dim");
  EXPECT_EQ(result.out.find(".cpp:"), std::string::npos) << result.out;
}

TEST_F(GuardedPlugin, AnAxisThatIsNoNameIsThePluginsErrorToo) {
  const Result result = run("check", "[[strategy]]\nplugin = \"numbered\"\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(holds(result.out,
                    "error: strategy plugin 'numbered' declares its option 'axis' as int; a mesh axis is "
                    "named by a string"));
  EXPECT_EQ(result.out.find(".cpp:"), std::string::npos) << result.out;
}

TEST_F(GuardedPlugin, MisreadOptionsAreThePluginsErrorWithoutAPathOfOurs) {
  const std::pair<const char*, const char*> cases[] = {
      {"misread", "option 'how' is declared as a text and read by the plugin as an int"},
      {"read_undeclared", "option 'hwo' is read by the plugin and not declared by it; did you mean 'how'?"},
      {"read_absent", "option 'level' is absent, as its schema allows; the plugin must ask has() first"}};
  for (const auto& [how, sentence] : cases) {
    const Result result = act(how);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_EQ(placed(result.out), "error: strategy plugin 'acts': " + std::string(sentence));
    EXPECT_EQ(result.out.find(".cpp:"), std::string::npos) << result.out;
  }
}

TEST_F(GuardedPlugin, AnOptionMayBeLeftOut) {
  EXPECT_TRUE(holds(act("ask_absent").out, "prun: strategy plugin 'acts': no level was given\n"));
  const Result given = run("check", "[[strategy]]\nplugin = \"acts\"\nhow = \"ask_absent\"\nlevel = 2.5\n");
  EXPECT_TRUE(holds(given.out, "prun: strategy plugin 'acts': the level is 2.5\n"));
}

TEST_F(GuardedPlugin, WhatAPluginLogsIsHeard) {
  const Result before = act("log");
  EXPECT_EQ(before.code, 0);
  EXPECT_TRUE(holds(before.out, "prun: strategy plugin 'acts': at work in "));
  const Result during = run("run", "[[observer]]\nplugin = \"talks\"\n");
  EXPECT_EQ(during.code, 0) << during.out;
  const std::string log = contents(folder_.path() / "out" / "log.jsonl");
  for (const char* step : {"1", "2", "3"})
    EXPECT_TRUE(holds(log, "observer plugin 'talks': saw step " + std::string(step)));
}

// ---------------------------------------------------------------- options by a plugin's name

TEST_F(GuardedPlugin, AScheduleIsGivenItsOptions) {
  const std::string pipeline =
      "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\naxis = \"pp\"\nschedule = \"waves\"\n";
  const std::vector<std::string> sets = {"batch.micro=1"};
  const Result plain = run("plan", pipeline, sets);
  EXPECT_TRUE(holds(plain.out, "rank 0  F0--...."));
  const Result waves = run("plan", pipeline + "[schedule.waves]\nwave = 4\n", sets);
  EXPECT_TRUE(holds(waves.out, "rank 0  F0----F1----F2----F3----"));
  const Result wrong = run("check", pipeline + "[schedule.waves]\nwvae = 4\n", sets);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(holds(wrong.out, "unknown key 'wvae' in [schedule.waves]; did you mean 'wave'?"));
  const Result unknown = run("check", pipeline + "[schedule.wavse]\n", sets);
  EXPECT_TRUE(holds(unknown.out, "there is no schedule plugin 'wavse'; did you mean 'waves'?"));
}

TEST_F(GuardedPlugin, ACommIsGivenItsOptions) {
  const std::string layout = data_parallel(2);
  std::vector<std::string> sets = {"comm.default=choosy", "batch.global=8"};
  const Result guess = run("check", layout, sets);
  EXPECT_EQ(guess.code, 2);
  EXPECT_TRUE(holds(guess.out, "prun: comm plugin 'choosy': the password is not 'guess'"));
  const Result told = run("check", layout + "[comm.choosy]\npassword = \"please\"\n", sets);
  EXPECT_EQ(told.code, 0) << told.out;
  sets.push_back("comm.choosy.password=please");
  const Result set = run("check", layout, sets);
  EXPECT_EQ(set.code, 0) << set.out;
}

// ---------------------------------------------------------------- kernels out of bounds

TEST_F(GuardedPlugin, AKernelThatKeepsToItsOperandsRuns) {
  const Result result = reckless("well");
  EXPECT_EQ(result.code, 0) << result.out;
}

TEST_F(GuardedPlugin, AKernelThatWritesBesideItsOperandsIsNamed) {
  const std::pair<const char*, const char*> cases[] = {{"behind", "behind its operand 'y'"},
                                                       {"in_front", "in front of its operand 'x'"},
                                                       {"workspace", "behind its workspace"}};
  for (const auto& [how, where] : cases) {
    const Result result = reckless(how);
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(holds(result.out, "the kernel of op 'reckless' in layer 0 of 'block' wrote " +
                                      std::string(where) + "; mend the kernel"));
  }
}

TEST_F(GuardedPlugin, AnImpossibleWorkspaceIsRefusedBeforeAnythingRuns) {
  const std::pair<const char*, const char*> cases[] = {{"negative", "-8"}, {"absurd", "9223372036854775807"}};
  for (const auto& [how, bytes] : cases) {
    const Result result = reckless(how, "check");
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(holds(result.out, "prun: op plugin 'reckless': the kernel of op 'reckless' asks for " +
                                      std::string(bytes) + " bytes of workspace"));
  }
}

TEST_F(GuardedPlugin, VerifyWithoutAKernelForFp64NamesTheWayOut) {
  const Result result = reckless("well", "verify");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(holds(result.out, "has no kernel for op 'reckless' on (fp64, fp64)"));
  EXPECT_TRUE(holds(result.out, "prun verify --as-is compares in the recipe's own precision"));
}

// ---------------------------------------------------------------- plugins that do not come back

TEST_F(GuardedPlugin, APluginThatHangsIsNamedAfterTheLimit) {
  const auto expect_hang = [&](const std::string& verb, const std::string& more, const std::string& named,
                               std::vector<std::string> sets) {
    sets.push_back("run.hang_limit=1");
    const Result result = run(verb, more, sets);
    EXPECT_EQ(result.code, 11) << result.out;
    EXPECT_TRUE(holds(result.out, "prun: " + named));
  };
  const std::string limit =
      ": it has not come back for 1 s (run.hang_limit); mend the plugin or leave it out";
  expect_hang("check", "[[strategy]]\nplugin = \"hangs_on_load\"\n",
              "strategy plugin 'hangs_on_load' hangs while it was loaded" + limit, {});
  expect_hang("plan", "[[strategy]]\nplugin = \"hangs-in-apply\"\n",
              "strategy plugin 'hangs-in-apply' hangs in apply()" + limit, {});
  expect_hang("run", "[[observer]]\nplugin = \"hangs-in-step\"\n",
              "observer plugin 'hangs-in-step' hangs in step()" + limit, {});
}

TEST_F(GuardedPlugin, AKernelThatHangsIsPlacedAndItsPluginNamed) {
  const Result result =
      run("run", "[[strategy]]\nplugin = \"acts\"\nhow = \"swap\"\n[op.reckless]\nhow = \"hang\"\n",
          {"plugins.ops=reckless", "run.hang_limit=1"});
  EXPECT_EQ(result.code, 11) << result.out;
  EXPECT_TRUE(holds(result.out,
                    "prun: device plugin 'cpu' hangs in run(): it has not come back for 1 s "
                    "(run.hang_limit); it was in step 1, in 'forward block.0 mb 0'"));
  EXPECT_TRUE(holds(result.out, "; it may be a kernel of op plugin reckless; mend"));
}

// Nobody is inside it when it hangs.
TEST_F(GuardedPlugin, AKernelThatHangsOnADeviceThatRunsItLaterIsNamed) {
  const Result result = run(
      "run", "[[strategy]]\nplugin = \"acts\"\nhow = \"swap\"\n[op.reckless]\nhow = \"hang\"\n",
      {"plugins.ops=reckless", "run.hang_limit=1", "plugins.path=" PRUN_TEST_PLUGINS "/test"}, "cpu-async");
  EXPECT_EQ(result.code, 11) << result.out;
  EXPECT_TRUE(holds(result.out,
                    "hangs while its queues work: it has not come back for 1 s (run.hang_limit); it was "
                    "in step 1, in 'forward"));
  EXPECT_TRUE(holds(result.out, "; it may be a kernel of op plugin reckless; mend"));
}

// All of several ranks: none waits for another in an exchange.
TEST_F(GuardedPlugin, AKernelThatHangsOnAllRanksEndsTheRun) {
  const std::string hangs =
      "[[strategy]]\nplugin = \"acts\"\nhow = \"swap\"\n[op.reckless]\nhow = \"hang\"\n"
      "[mesh]\ndp = 2\n[[strategy]]\nplugin = \"data\"\n";
  for (const char* device : {"cpu", "cpu-async"}) {
    const Result result = run("run", hangs,
                              {"plugins.ops=reckless", "run.hang_limit=3", "batch.global=8",
                               "plugins.path=" PRUN_TEST_PLUGINS "/test"},
                              device);
    EXPECT_EQ(result.code, 11) << result.out;
    EXPECT_TRUE(holds(result.out, "has not got on in a step for "));
    EXPECT_TRUE(holds(result.out, " s, nor has any other rank"));
    EXPECT_TRUE(holds(result.out, "step 1, in 'forward "));
  }
}

// ---------------------------------------------------------------- ops by name

TEST_F(GuardedPlugin, AnOpThatIsNotThereNamesItsSegmentAndWhereMoreComeFrom) {
  const Result result = run("check", "[[strategy]]\nplugin = \"acts\"\nhow = \"swap\"\n");
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_TRUE(holds(result.out, "segment 'block': there is no op 'reckless'"));
  EXPECT_TRUE(holds(result.out, "[plugins] ops = ["));
}

TEST_F(GuardedPlugin, OpsAreListedAndExplained) {
  const Result list = prun({"ops", "list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_TRUE(holds(list.out, "\nlinear  "));
  EXPECT_EQ(list.out.find("reckless"), std::string::npos);
  const std::string recipe = (folder_.path() / "recipe.toml").string();
  run("check", "", {});
  const Result more =
      prun({"ops", "list", recipe, "--plugin-path", fixtures().string(), "--set", "plugins.ops=reckless"});
  EXPECT_TRUE(holds(more.out, "y = x (op plugin 'reckless')"));
  const Result linear = prun({"explain", "linear"});
  EXPECT_EQ(linear.code, 0) << linear.out;
  for (const char* part :
       {"op linear\n", "    bias          read, optional, such as [out]\n", "    y             written\n",
        "    in_dims       whole number, 1 where it is left out\n", "summed over        hidden\n",
        "must be whole      none\n"})
    EXPECT_TRUE(holds(linear.out, part));
  const Result plain = prun(
      {"explain", "reckless", recipe, "--plugin-path", fixtures().string(), "--set", "plugins.ops=reckless"});
  EXPECT_TRUE(holds(plain.out, "op reckless\n  y = x\n"));
  EXPECT_EQ(prun({"explain", "liner"}).code, 2);
}

// ---------------------------------------------------------------- which plugin is meant

TEST_F(GuardedPlugin, TheCommandLineComesBeforeTheRecipe) {
  const std::filesystem::path broken = folder_.path() / "broken";
  std::filesystem::create_directory(broken);
  write_file(broken / "libprun_strategy_acts.so", "not a library");
  const std::string recipe = "[[strategy]]\nplugin = \"acts\"\nhow = \"log\"\n";
  const Result result = run("check", recipe, {"plugins.path=" + broken.string()});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_TRUE(holds(result.out, "at work in"));
}

TEST_F(GuardedPlugin, RefusedPluginsAreListedWithTheReason) {
  const std::string out = prun({"plugins", "list", "--plugin-path", fixtures().string()}).out;
  EXPECT_TRUE(holds(out, "libprun_model_wrong_epoch.so\n"));
  EXPECT_TRUE(holds(out, "refused: it was built for epoch 1"));
  EXPECT_TRUE(holds(out, "refused: it states an unknown trait 'conflict'; did you mean 'conflicts'?"));
}

}  // namespace
}  // namespace prun::test
