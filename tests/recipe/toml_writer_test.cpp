// What is written is read back, whatever texts and comments hold.
#include "recipe/toml_writer.hpp"

#include <gtest/gtest.h>

#include "convert/hostile_words.hpp"
#include "prun/visible.hpp"
#include "recipe/toml_reader.hpp"

namespace prun::test {
namespace {

using recipe::OptionType;
using recipe::TomlWriter;
using recipe::Value;

recipe::Node read(const std::string& toml) {
  recipe::Diagnostics diagnostics;
  const auto source =
      std::make_shared<const recipe::Source>(recipe::Source{"t", toml, 0, recipe::Source::Kind::file});
  const auto root = recipe::read_toml(source, diagnostics);
  EXPECT_TRUE(root) << diagnostics.text();
  return root.value_or(recipe::Node{});
}

TEST(TomlWriter, WritesTablesItemsAndComments) {
  TomlWriter out;
  out.comment("Two\nlines").empty_list("observer").table("optimizer").value("lr", 1e-3, "how far");
  out.value("schedule.kind", "cosine").item("strategy").value("betas", std::vector{0.9, 0.95});
  EXPECT_EQ(out.text(),
            "# Two\n# lines\nobserver = []\n\n[optimizer]\n"
            "lr = 0.001                              # how far\nschedule.kind = \"cosine\"\n"
            "\n[[strategy]]\nbetas = [0.9, 0.95]\n");
}

TEST(TomlWriter, NothingGetsOutOfATextOrAComment) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = hostile_word(random) + std::string(round % 2, '\0'), note = hostile_word(random),
                      item = hostile_word(random), key = hostile_word(random, ".");
    TomlWriter out;
    out.comment(note).table("a").value("text", text, note).value("list", std::vector{item, text}, text);
    out.value(key, round, item).item("b").value("plugin", item, note);
    ASSERT_EQ(visible_lines(out.text()), out.text());
    const recipe::Node root = read(out.text());
    ASSERT_EQ(root.members.size(), 2u) << out.text();
    const recipe::Node &a = root.find("a")->value, &b = root.find("b")->value;
    ASSERT_EQ(a.members.size(), 3u) << out.text();
    ASSERT_EQ(a.find("text")->value.text, text);
    ASSERT_EQ(a.find("list")->value.items.at(0).text, item);
    ASSERT_EQ(a.find("list")->value.items.at(1).text, text);
    ASSERT_EQ(a.find(key)->value.integer, round);
    ASSERT_EQ(b.items.size(), 1u);
    ASSERT_EQ(b.items[0].find("plugin")->value.text, item);
  }
}

// As --set reads them, and as checkpoints keep them.
TEST(TomlWriter, ValuesComeBackFromTheirText) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string word = hostile_word(random) + std::string(round % 2, '\0');
    const Value text = word, list = std::vector{word, hostile_word(random)};
    ASSERT_EQ(recipe::parse_value(OptionType::string, recipe::to_toml(text)), text);
    ASSERT_EQ(recipe::parse_value(OptionType::strings, recipe::to_toml(list)), list);
    ASSERT_EQ(recipe::value_of_toml(recipe::to_toml(text)), text);
    ASSERT_EQ(recipe::value_of_toml(recipe::to_toml(list)), list);
  }
  for (const Value& value : {Value(std::int64_t{-3}), Value(1e-7), Value(true), Value(std::vector{1.0, 2.5}),
                             Value(std::vector<std::int64_t>{1, 2}), Value(std::vector<std::int64_t>{})})
    EXPECT_EQ(recipe::value_of_toml(recipe::to_toml(value)), value);
}

TEST(TomlWriter, WhatIsMoreThanAValueIsNone) {
  for (const char* text : {"", "1\n[[observer]]\nplugin = \"notify\"", "1\r\n", "\"\"\"\na\"\"\"",
                           "{ a = 1 }", "[1, \"a\"]", "1979-05-27", "[[1]]", "x"})
    EXPECT_FALSE(recipe::value_of_toml(text)) << text;
}

}  // namespace
}  // namespace prun::test
