// What others wrote, on its way to a terminal: in names of files, recipes, configurations, checkpoints, logs.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "binary.hpp"
#include "prun/visible.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

// Clears the screen, sets a colour by one byte of ISO 6429, turns letters round.
const std::string nasty = "\x1b[2J\u009b31m\u202eé", seen = "\\x1b[2J\\u009b31m\\u202eé";
const std::string nasty_json = "\\u001b[2J\\u009b31m\\u202eé";  // within JSON and TOML

void expect_visible(const std::string& out) {
  EXPECT_EQ(out, visible_lines(out));
  EXPECT_NE(out.find(seen), std::string::npos) << out;
}

// Of standard output and error together, since run_program reads both.
class WordsOfOthers : public testing::Test {
 protected:
  void expect_refused(const std::vector<std::string>& words) {
    const Result result = prun(words);
    EXPECT_EQ(result.code, 2) << result.out;
    expect_visible(result.out);
  }

  const TempFolder folder_;
};

TEST_F(WordsOfOthers, WordsOfTheCommandLineAreVisible) {
  expect_refused({nasty});
  expect_refused({"check", folder_ / nasty});
  expect_refused({"explain", nasty});
  expect_refused({"runs", folder_ / nasty});
}

TEST_F(WordsOfOthers, WordsOfARecipeAreVisible) {
  const std::string good =
      "[run]\nname = \"a\"\nsteps = 1\n[model]\nplugin = \"gpt\"\nlayers = 1\nhidden = 32\n"
      "heads = 2\nseq = 16\nvocab = 256\n[data]\nplugin = \"text\"\npath = \".\"\n[batch]\n"
      "global = 1\nmicro = 1\n[optimizer]\nplugin = \"adamw\"\nlr = 1e-3\n";
  expect_refused({"check", folder_.write("a.toml", good + "\"" + nasty_json + "\" = 1\n")});
  expect_refused(
      {"check", folder_.write("b.toml", good + "[[optimizer.group]]\nmatch = \"" + nasty_json + "\"\n")});
  expect_refused({"check", folder_.write("c.toml", good), "--set", "data.path=" + nasty});
  expect_refused({"check", folder_.write("d.toml", good), "--set", "model.plugin=" + nasty});
}

TEST_F(WordsOfOthers, KeysOfAConfigurationAreVisible) {
  const std::string file =
      folder_.write("ds.json", "{\"train_batch_size\": 1, \"train_micro_batch_size_per_gpu\": 1, \"" +
                                   nasty_json + "\": 1}");
  const Result converted = prun({"convert", file,
                                 "--ranks", "1",
                                 "--set",   "model.plugin=gpt",
                                 "--set",   "model.layers=1",
                                 "--set",   "model.hidden=32",
                                 "--set",   "model.heads=2",
                                 "--set",   "model.vocab=256",
                                 "--set",   "model.seq=16",
                                 "--set",   "run.steps=1",
                                 "--set",   "data.plugin=text",
                                 "--set",   "data.path=.",
                                 "--set",   "optimizer.plugin=adamw",
                                 "--set",   "optimizer.lr=1e-3"});
  EXPECT_EQ(converted.code, 0) << converted.out;
  expect_visible(converted.out);
}

// A stream hands on pieces of a text, wherever they end.
TEST_F(WordsOfOthers, LettersOfALongTextStayWhole) {
  std::string json = "{\"train_batch_size\": 1, \"train_micro_batch_size_per_gpu\": 1";
  for (int i = 0; i < 3000; ++i) json += ", \"" + std::to_string(i) + "é字\U0001f600\": 1";
  std::vector<std::string> words = {"convert", folder_.write("ds.json", json + "}"), "--ranks", "1"};
  for (const char* set : {"model.plugin=gpt", "model.layers=1", "model.hidden=32", "model.heads=2",
                          "model.vocab=256", "model.seq=16", "run.steps=1", "data.plugin=text", "data.path=.",
                          "optimizer.plugin=adamw", "optimizer.lr=1e-3"})
    words.insert(words.end(), {"--set", set});
  const Result printed = prun(words);
  EXPECT_EQ(printed.code, 0);
  words.insert(words.end(), {"--out", folder_ / "recipe.toml"});
  EXPECT_EQ(prun(words).code, 0);
  EXPECT_GT(printed.out.size(), 50000u);
  EXPECT_EQ(printed.out, read_file(folder_ / "recipe.toml"));
}

TEST_F(WordsOfOthers, NamesOfTensorsAndFilesAreVisible) {
  const std::string hub =
      folder_.write("hub/config.json", read_file(PRUN_TEST_FIXTURES "/hugging_face/gpt2/config.json"));
  const auto import_with = [&](const std::string& index) {
    folder_.write("hub/model.safetensors.index.json", index);
    expect_refused({"import", folder_ / "hub", "--out", folder_ / "imported"});
  };
  import_with("{\"weight_map\": {\"" + nasty_json + "\": \"../x\"}}");
  import_with("{\"weight_map\": {\"" + nasty_json + "\": 3}}");
  import_with("{\"weight_map\": {\"a\": \"" + nasty_json + "\"}}");
}

TEST_F(WordsOfOthers, WordsOfAManifestAndALogAreVisible) {
  folder_.write("run/step-00000001/manifest.json", "{\"" + nasty_json + "\": 1, \"" + nasty_json + "\": 1");
  folder_.write("run/recipe.toml", "");
  const Result listed = prun({"ckpt", "ls", folder_ / "run"}),
               shown = prun({"ckpt", "show", folder_ / "run"});
  for (const std::string& out : {listed.out, shown.out}) EXPECT_EQ(out, visible_lines(out));
  folder_.write("runs/" + nasty + "/recipe.toml", "");
  folder_.write("runs/" + nasty + "/log.jsonl",
                "{\"event\":\"start\",\"name\":\"" + nasty_json + "\",\"message\":\"" + nasty_json + "\"}\n");
  const Result runs = prun({"runs", folder_ / "runs"});
  EXPECT_EQ(runs.code, 0) << runs.out;
  expect_visible(runs.out);
  const Result json = prun({"runs", folder_ / "runs", "--json"});
  EXPECT_EQ(json.out, visible_lines(json.out));
}

// What prun writes to a terminal of its own, until it ends.
std::string on_a_terminal(std::vector<std::string> words) {
  words.insert(words.begin(), PRUN_TEST_BINARY);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(count));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << out;
  return out;
}

// Text that a model goes on with is data: a file gets its bytes.
TEST_F(WordsOfOthers, GeneratedTextIsVisibleOnATerminalAndAsItIsElsewhere) {
  const std::string recipe = folder_.write(
      "a.toml",
      "[run]\nname = \"a\"\nsteps = 1\nsave_every = 1\nout = \"" + folder_ / "run" +
          "\"\n[model]\nplugin = \"gpt\"\nlayers = 1\nhidden = 32\nheads = 2\nseq = 32\n"
          "vocab = 256\n[data]\nplugin = \"text\"\npath = \"" PRUN_SOURCE_DIR
          "/README.md\"\n[batch]\n"
          "global = 1\nmicro = 1\n[optimizer]\nplugin = \"adamw\"\nlr = 1e-3\n[[observer]]\nplugin = "
          "\"jsonl\"\n[device]\nplugin = \"cpu\"\n");
  const Result run = prun({recipe});
  ASSERT_EQ(run.code, 0) << run.out;
  const std::vector<std::string> words = {"generate", folder_ / "run", nasty, "--max-tokens", "2"};
  const Result piped = prun(words);
  EXPECT_EQ(piped.code, 0) << piped.out;
  EXPECT_EQ(piped.out.substr(0, nasty.size()), nasty);
  const std::string shown = on_a_terminal(words);
  EXPECT_EQ(shown.substr(0, seen.size()), seen);
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace prun::test
