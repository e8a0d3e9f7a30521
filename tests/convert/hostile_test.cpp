// Configurations that were written to become something else than what they say: whatever names and values
// hold, the recipe has the values that were meant, and no plugin that the converter did not choose.
#include <gtest/gtest.h>

#include "base/json.hpp"
#include "convert/foreign_recipe.hpp"
#include "convert/hostile_words.hpp"
#include "prun/visible.hpp"
#include "recipe/toml_reader.hpp"
#include "recipe/value.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::hostile_test {
namespace {

constexpr int rounds = 300;

// What a recipe says, without its comments: every key with its value, in order.
void say(const recipe::Node& node, const std::string& path, std::string& out) {
  using Kind = recipe::Node::Kind;
  for (const recipe::Member& member : node.members) say(member.value, path + "." + member.key, out);
  for (const recipe::Node& item : node.items) say(item, path + "[]", out);
  if (node.kind == Kind::table || node.kind == Kind::list) return;
  out += path + " = ";
  if (node.kind == Kind::integer) out += std::to_string(node.integer);
  if (node.kind == Kind::real) out += recipe::to_toml(recipe::Value(node.real));
  if (node.kind == Kind::boolean) out += node.boolean ? "true" : "false";
  if (node.kind == Kind::string) out += "text " + node.text;
  out += '\n';
}

std::string said_by(const std::string& toml) {
  recipe::Diagnostics diagnostics;
  const auto source =
      std::make_shared<const recipe::Source>(recipe::Source{"r", toml, 0, recipe::Source::Kind::file});
  const auto root = recipe::read_toml(source, diagnostics);
  EXPECT_TRUE(root) << diagnostics.text() << toml;
  std::string out;
  if (root) say(*root, "", out);
  return out;
}

class HostileConfiguration : public testing::Test {
 protected:
  std::string recipe_of(const std::string& name, const std::string& config) {
    given_.ranks = 2;
    const std::string file = folder_.write(name, config);
    const convert::Converted converted = convert::convert_file(file, given_, plugins().catalog());
    EXPECT_EQ(visible_lines(converted.recipe), converted.recipe);
    EXPECT_EQ(converted.recipe.find('\t'), std::string::npos);
    return converted.recipe;
  }

  TempFolder folder_;
  convert::Given given_{2,
                        "",
                        {"model.plugin=gpt", "model.layers=2", "model.hidden=64", "model.heads=4",
                         "model.vocab=256", "model.seq=32", "run.steps=10", "data.plugin=text", "data.path=.",
                         "optimizer.plugin=adamw", "optimizer.lr=1e-4"}};
  std::mt19937 random_{1};
};

// The order to its observer to touch a file, as it was found.
TEST_F(HostileConfiguration, AKeyThatEndsItsLineNamesNoObserver) {
  const std::string recipe = recipe_of(
      "ds.json",
      R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "x\n[[observer]]\nplugin = \"notify\"\ncommand = \"touch EXECUTED\"\n#": 1})");
  EXPECT_EQ(said_by(recipe).find("notify"), std::string::npos) << recipe;
  EXPECT_NE(recipe.find("#   x\\n[[observer]]\\nplugin"), std::string::npos) << recipe;
}

// Of words with NUL, since JSON can spell it.
TEST_F(HostileConfiguration, NamesAndValuesOfADeepSpeedJsonStayInTheirComments) {
  const auto config = [](const std::vector<std::pair<std::string, std::string>>& more) {
    JsonWriter json;
    json.begin_object().member("train_batch_size", 4).member("train_micro_batch_size_per_gpu", 2);
    json.name("wandb").begin_object().member("enabled", false);
    for (const auto& [key, value] : more) json.member(key, value);
    json.end_object();
    for (const auto& [key, value] : more) json.member("top " + key, value);
    return json.end_object().take();
  };
  const std::string plain = said_by(recipe_of("ds.json", config({})));
  for (int round = 0; round < rounds; ++round) {
    const std::string key = hostile_word(random_) + std::string(1, '\0'), value = hostile_word(random_);
    const std::string recipe = recipe_of("ds.json", config({{key, value}, {value, "[" + key}}));
    ASSERT_EQ(said_by(recipe), plain) << recipe;
  }
}

TEST_F(HostileConfiguration, ValuesOfMegatronsArgumentsAreTheValuesOfTheRecipe) {
  given_.sets = {"model.vocab=256", "run.steps=10"};
  const std::string shape =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-4 --split 1 ";
  const auto recipe = [&](const std::string& save, const std::string& data, const std::string& board) {
    return recipe_of("train.sh", shape + "--save '" + save + "' --data-path '" + data +
                                     "' --tensorboard-dir '" + board + "' --unknown-" + board.substr(0, 0) +
                                     "key '" + save + "'\n");
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  };
  const std::string plain = said_by(recipe("SAVE", "DATA", "BOARD"));
  ASSERT_NE(plain.find(".run.out = text SAVE\n"), std::string::npos) << plain;
  for (int round = 0; round < rounds; ++round) {
    const std::string save = hostile_word(random_), data = hostile_word(random_, " "),
                      board = hostile_word(random_);
    const std::string wanted =
        replaced(replaced(replaced(plain, "SAVE", save), "DATA", data), "BOARD", board);
    const std::string written = recipe(save, data, board);
    ASSERT_EQ(said_by(written), wanted) << written;
  }
}

TEST_F(HostileConfiguration, NamesAndListsOfATorchtitanTomlStayInTheirComments) {
  const auto config = [](const std::string& key, const std::string& value) {
    const std::string name = recipe::to_toml(recipe::Value(key)),
                      text = recipe::to_toml(recipe::Value(value));
    return "[training]\nlocal_batch_size = 2\nseq_len = 32\nsteps = 10\n[model]\nflavor = \"8B\"\n"
           "[metrics]\n" +
           name + " = " + text + "\n[unknown]\n" + name + " = [" + text + ", " + text + "]\n" + "[" + name +
           "]\n" + name + " = [" + text + "]\n";
  };
  given_.sets = {"data.plugin=text", "data.path=."};
  const std::string plain = said_by(recipe_of("titan.toml", config("key", "value")));
  for (int round = 0; round < rounds; ++round) {
    const std::string recipe = recipe_of("titan.toml", config(hostile_word(random_), hostile_word(random_)));
    ASSERT_EQ(said_by(recipe), plain) << recipe;
  }
}

// A value that is carried over is one value, of whatever type; else it is refused by its key.
TEST_F(HostileConfiguration, AValueThatBeginsAListIsNoPieceOfARecipe) {
  for (const char* value :
       {"[\\n[observer]]", "[[observer]]\\nplugin = \\\"notify\\\"", "[1]\\n[mesh]\\ndp = 2"}) {
    const std::string config = detail::concat(
        R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": ")", value,
        "\"}");
    try {
      recipe_of("ds.json", config);
      FAIL() << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("wrong type for 'clip' in [optimizer]"), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(HostileConfiguration, WhatIsNoTextIsRefusedByItsPlace) {
  for (const auto& [config, place] : {std::pair(std::string("--save a\0b", 10), "byte 8 "),
                                      std::pair(std::string("--save \xff"), "byte 7 "),
                                      std::pair(std::string("--save \xe2\x82"), "byte 7 ")})
    try {
      recipe_of("train.sh", config);
      FAIL() << place;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace prun::test::hostile_test
