// Recipes that checkpoints keep, as text: each setting is one value, wherever the manifest comes from.
#include "train/checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include "convert/hostile_words.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::settings_test {
namespace {

TEST(Settings, TextsOfARecipeComeBack) {
  std::mt19937 random(1);
  for (int round = 0; round < 30; ++round) {
    const std::string word = hostile_word(random);
    Settings settings = settings_of(tiny_recipe({"run.steps=2"}));
    for (auto& [key, value] : settings)
      if (key == "run.out" || key == "data.path") value = recipe::to_toml(recipe::Value(word));
    const Recipe read = Recipe::parse(to_toml(settings), "manifest", {}, plugins().catalog());
    ASSERT_EQ(settings_of(read), settings) << to_toml(settings);
    ASSERT_EQ(read.text("run.out"), word);
  }
}

TEST(Settings, WhatIsMoreThanAValueIsRefused) {
  const char* const observer = "\n[[observer]]\nplugin = \"notify\"\ncommand = \"touch EXECUTED\"\n#";
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>("run.steps", std::string("1") + observer),
        {"run.name", std::string("\"a\"") + observer},
        {"run.name", "\"a\"\r[plugins]\rpath = [\".\"]"},
        {"run.name", "a"},
        {"run.name", ""},
        {"run", "1"}})
    try {
      const std::string text = to_toml({{key, value}});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("setting '" + key + "' is "), std::string::npos)
          << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
}

// A name that would end its table's header is a name.
TEST(Settings, KeysStayKeys) {
  const std::string text = to_toml({{std::string("run\n[[observer]]\nplugin = \"notify\"\n[x.name"), "1"},
                                    {std::string("run.steps = 1\n[[observer]]\nplugin"), "\"notify\""}});
  try {
    Recipe::parse(text, "manifest", {}, plugins().catalog());
    ADD_FAILURE() << text;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("unknown section [run\\n[[observer]]"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace prun::test::settings_test
