// What notes let be varied.
#include <gtest/gtest.h>

#include "tuned.hpp"

namespace prun::test {
namespace {

PluginNote note(const std::string& traits_varies, const std::string& options) {
  PluginNote note;
  note.kind = "strategy";
  note.name = "mine";
  note.traits = {{"phase", "shard"}, {"tune", "exact"}, {"varies", traits_varies}};
  note.options = options;
  return note;
}

constexpr const char* options =
    "axis | string | mine | | Axis\n"
    "depth | int | 2 | 1..4 | Depth\n"
    "way | choice | b | a,b,c | Way\n"
    "on | bool | true | | Whether\n";

std::vector<std::string> values_of(const StrategyVariables& variables, const std::string& key) {
  for (const VariedOption& option : variables.options)
    if (option.key == key) return option.values;
  return {};
}

TEST(Variables, AreReadFromTraitsAndRanges) {
  const StrategyVariables all = variables_of(note("depth:1|4, way, on", options), plugins());
  EXPECT_EQ(values_of(all, "depth"), (std::vector<std::string>{"1", "4"}));
  EXPECT_EQ(values_of(all, "way"), (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(values_of(all, "on"), (std::vector<std::string>{"true", "false"}));
  EXPECT_EQ(all.axis, AxisUse::own);
  EXPECT_EQ(all.own_axis, "mine");
  EXPECT_EQ(all.added, Exactness::exact);
}

TEST(Variables, AValueInBracketsMayHaveCommas) {
  const StrategyVariables all = variables_of(
      note("place:host|(device:75, host:25), on", std::string(options) + "place | string | host | | Place\n"),
      plugins());
  EXPECT_EQ(values_of(all, "place"), (std::vector<std::string>{"host", "device:75, host:25"}));
  EXPECT_EQ(values_of(all, "on").size(), 2U);
}

TEST(Variables, PluginsOfAKindAreValues) {
  const StrategyVariables all =
      variables_of(note("s:@schedule", "s | string | 1f1b | | Schedule\n"), plugins());
  EXPECT_TRUE(has(values_of(all, "s"), "1f1b"));
  EXPECT_TRUE(has(values_of(all, "s"), "zb-v"));
}

TEST(Variables, WhatThereIsNotIsRefusedByName) {
  const auto refused = [](const std::string& varies) {
    return refusal_of([&] { variables_of(note(varies, options), plugins()); });
  };
  EXPECT_NE(refused("width:1|2").find("names 'width', and it has no such option"), std::string::npos);
  EXPECT_NE(refused("depth:1|9").find("lists '9' for 'depth', which that cannot be"), std::string::npos);
  EXPECT_NE(refused("way:d").find("lists 'd' for 'way'"), std::string::npos);
  EXPECT_NE(refused("depth").find("without values, and that is no choice"), std::string::npos);
}

TEST(Variables, ThoseOfPrunsOwnPluginsAreInOrder) {
  for (const std::string& name : plugins().catalog().names("strategy")) {
    const PluginNote& of = plugins().note("strategy", name);
    EXPECT_EQ(refusal_of([&] { variables_of(of, plugins()); }), "") << name;
  }
}

}  // namespace
}  // namespace prun::test
