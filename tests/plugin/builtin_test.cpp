// The built-in plugins are built as a third party's are: what they need of prun lies in the SDK library.
#include <gtest/gtest.h>

#include <algorithm>

#include "plugin/discovery.hpp"
#include "plugin_check/conformance.hpp"
#include "plugin_check/kind_checks.hpp"
#include "plugin_check/tiny_recipe.hpp"

namespace prun {
namespace {

std::vector<PluginCandidate> builtins() {
  const std::vector<SearchPlace> places = {{PRUN_TEST_PLUGINS, "the build"}};
  return list_plugins(places);
}

TEST(Builtins, AreUsableAndMany) {
  EXPECT_GE(builtins().size(), 9u);
  for (const PluginCandidate& plugin : builtins()) EXPECT_TRUE(plugin.usable()) << state_of(plugin);
}

TEST(Builtins, NeedNothingOfPrunBeyondTheSdkLibrary) {
  for (const PluginCandidate& plugin : builtins()) {
    int ours = 0;
    for (const std::string& symbol : plugin.note->undefined) {
      if (symbol.find("prun") == std::string::npos) continue;
      EXPECT_EQ(symbol, "prun_sdk_epoch_10_itanium_libstdcxx11") << plugin.path;
      ++ours;
    }
    EXPECT_EQ(ours, 1) << plugin.path << " is not bound to the SDK's epoch";
  }
}

TEST(Builtins, KeepTheContract) {
  const auto defaults = [](const PluginNote& note) { return default_options(trial_schema(note, "")); };
  for (const PluginCandidate& plugin : builtins())
    for (const ContractCheck& check : check_plugin(plugin.path, defaults, std::chrono::minutes(4),
                                                   kind_checks({{PRUN_TEST_PLUGINS, "the build"}})))
      EXPECT_NE(check.verdict, CheckVerdict::failed) << plugin.path << ": " << to_text(check);
}

}  // namespace
}  // namespace prun
