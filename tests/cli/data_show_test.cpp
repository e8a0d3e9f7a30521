// prun data show of models that learn what they do not see: masked tokens, and spans that are cut out.
#include <gtest/gtest.h>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/samples.hpp"

namespace prun::test {
namespace {

struct Shown {
  std::vector<std::int32_t> tokens, targets;

  // As training gets it.
  Shown(const Recipe& recipe, std::int64_t number)
      : tokens(static_cast<std::size_t>(recipe.integer("model.seq"))), targets(tokens.size()) {
    open_data(Assembly(recipe, plugins()), plugins()).read(number, tokens, targets);
  }
  std::size_t learned() const {
    return static_cast<std::size_t>(
        std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; }));
  }
  // What is learned between marks, and what is seen of the rest.
  std::string text() const {
    std::string text;
    bool marked = false;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if ((targets[i] >= 0) != marked) text += marked ? "\xE2\x9F\xA7" : "\xE2\x9F\xA6";
      marked = targets[i] >= 0;
      text += " " + std::to_string(marked ? targets[i] : tokens[i]);
    }
    return text + (marked ? "\xE2\x9F\xA7" : "");
  }
};

void expect_shown(std::vector<std::string> sets) {
  const TempFolder folder;
  sets.emplace_back("data.shuffle=false");
  const Recipe recipe = tiny_recipe(sets);
  const std::string file = folder.write("run.toml", recipe.resolved_toml());
  const Result first = prun({"data", "show", file, "--sample", "0"});
  EXPECT_EQ(first.code, 0) << first.out;
  EXPECT_EQ(first.out, prun({"data", "show", file}).out);
  const Result none = prun({"data", "show", file, "--sample", "-1"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.out.find("--sample takes 0 or a count, not '-1'"), std::string::npos) << none.out;
  const Shown sample(recipe, 3);
  EXPECT_GT(sample.learned(), 1u);
  const Result shown = prun({"data", "show", file, "--sample", "3"});
  ASSERT_EQ(shown.code, 0) << shown.out;
  EXPECT_NE(shown.out.find(sample.text() + "\n"), std::string::npos) << shown.out << sample.text();
  EXPECT_NE(shown.out.find(" tokens, " + std::to_string(sample.learned()) + " of them learned"),
            std::string::npos)
      << shown.out;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.targets[i] < 0) continue;
    const std::string row =
        " " + std::to_string(sample.tokens[i]) + " ->  " + std::to_string(sample.targets[i]) + "\n";
    EXPECT_NE(shown.out.find(row), std::string::npos) << i << shown.out;
  }
}

TEST(DataShow, ShowsWhatMasksHide) {
  expect_shown({"model.plugin=bert", "data.mask=0.4", "data.mask_token=63", "data.mask_never=[0]"});
}

TEST(DataShow, ShowsWhichSpansAreCutOut) {
  expect_shown(
      {"model.plugin=t5", "model.inputs=10", "data.spans=0.3", "data.span_length=2", "data.span_token=63"});
}

// Each conversation in JSON, or why it is refused, and then the command fails.
TEST(DataRender, ShowsConversationsAsTheModelReadsThem) {
  const TempFolder folder;
  const std::string good =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})";
  const std::string tokenizer = PRUN_TEST_FIXTURES "/chat/chatml";
  const auto rendered = [&](const std::string& lines, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"data", "render", folder.write("chats.jsonl", lines), "--tokenizer", tokenizer});
    return prun(more);
  };
  const Result shown = rendered(good + "\n", {"--template", "chatml"});
  ASSERT_EQ(shown.code, 0) << shown.out;
  const JsonValue row = parse_json(shown.out, "row");
  EXPECT_EQ(row.at("text").as_string(),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  ASSERT_EQ(row.at("tokens").as_array().size(), row.at("learned").as_array().size());
  EXPECT_EQ(row.at("learned").as_array().back().as_int64(), 1);
  EXPECT_EQ(row.at("learned").as_array().front().as_int64(), 0);
  const Result asked = rendered(good + "\n", {"--template", "chatml", "--prompt"});
  EXPECT_NE(asked.out.find("b<|im_end|>\\n<|im_start|>assistant\\n\""), std::string::npos) << asked.out;
  const Result refused = rendered("{}\n" + good + "\n", {"--template", "chatml"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.out.find("chats.jsonl:1: has neither messages"), std::string::npos) << refused.out;
  EXPECT_NE(refused.out.find("1 conversations of"), std::string::npos) << refused.out;
  EXPECT_NE(rendered(good, {"--learn", "some"}).out.find("--learn takes answers, last or all"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test
