// prun tokenize from the shell, and a recipe that trains on what it wrote.
#include <gtest/gtest.h>

#include "cli/binary.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

const std::string tokenizer = PRUN_TEST_FIXTURES "/tokenizer/gpt2.json";

void says(const Result& result, int code, const char* part) {
  EXPECT_EQ(result.code, code) << result.out;
  EXPECT_NE(result.out.find(part), std::string::npos) << result.out;
}

TEST(TokenizeCommand, WritesWhatARecipeTrainsOn) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"text\": \"the end of line " + std::to_string(i) + "\"}\n";
  const std::string corpus = folder.write("corpus.jsonl", lines + "{\"text\": \"\"}\n");
  const Result written = prun({"tokenize", tokenizer, corpus, "--out", folder / "set"});
  says(written, 0, "40 documents");
  says(written, 0, "left out 1 documents without text");
  const std::string recipe = folder.write("r.toml",
                                          "[run]\nname = 'r'\nsteps = 2\n[model]\nplugin = 'gpt'\nlayers = "
                                          "1\nhidden = 16\nheads = 2\nseq = 8\nvocab = 701\n"
                                          "[data]\nplugin = 'tokens'\npath = 'set'\n[batch]\nglobal = "
                                          "2\nmicro = 2\n[optimizer]\nplugin = 'adamw'\nlr = 1e-3\n");
  const std::vector<std::string> sets = {"--set", "run.out=" + (folder / "run"),
                                         "--set", "data.path=" + (folder / "set"),
                                         "--set", "device.plugin=cpu"};
  std::vector<std::string> words = {recipe};
  words.insert(words.end(), sets.begin(), sets.end());
  EXPECT_EQ(prun(words).code, 0) << prun(words).out;
  says(prun({"tokenize", tokenizer, corpus, "--out", folder / "set"}), 2, "exists; remove it");
}

TEST(TokenizeCommand, SaysHowItIsUsed) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "a");
  says(prun({"tokenize"}), 2, "usage: prun tokenize TOKENIZER FILE... --out PREFIX");
  says(prun({"tokenize", tokenizer, text}), 2, "needs --out PREFIX: where to; usage: prun tokenize");
  says(prun({"tokenize", folder / "none.json", text, "--out", folder / "s"}), 2,
       "as a tokenizer.json: there is no such file");
  says(prun({"tokenize", tokenizer, text, "--out", folder / "s", "--end-of-text", "<eos>"}), 2,
       "has no added token '<eos>'");
}

}  // namespace
}  // namespace prun::test
