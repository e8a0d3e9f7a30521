// Commands that write much, ended in the middle: by a signal they leave nothing, and what SIGKILL leaves goes
// with the next of the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// What each verb starts from, once for all: large enough for a command to take a while.
class Sources {
 public:
  Sources() {
    const std::string recipe =
        folder_.write("large.toml", tiny_recipe({"run.steps=1", "run.save_every=1", "run.out=" + run(),
                                                 "model.hidden=256", "model.vocab=16384", "model.layers=4"})
                                        .resolved_toml());
    EXPECT_EQ(prun({recipe}).code, 0);
    EXPECT_EQ(prun({"export", run(), "--out", exported()}).code, 0);
    std::string text;
    while (text.size() < (std::size_t{24} << 20))
      text += "the end of line " + std::to_string(text.size()) + "\n";
    folder_.write("corpus.txt", text);
    folder_.write("ds.json",
                  R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  }
  std::string run() const { return folder_ / "run"; }
  std::string exported() const { return folder_ / "exported"; }
  std::string corpus() const { return folder_ / "corpus.txt"; }
  std::string settings() const { return folder_ / "ds.json"; }

 private:
  const TempFolder folder_;
};

const Sources& sources() {
  static const Sources all;
  return all;
}

struct Verb {
  const char* name;
  std::function<std::vector<std::string>(const std::string& out)> words;
};

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"export",
       [](const std::string& out) {
         return std::vector<std::string>{"export", sources().run(), "--out", out};
       }},
      {"import",
       [](const std::string& out) {
         return std::vector<std::string>{"import", sources().exported(), "--out", out};
       }},
      {"reshard",
       [](const std::string& out) {
         return std::vector<std::string>{"ckpt", "reshard", sources().run(), out};
       }},
      {"tokenize", [](const std::string& out) {
         return std::vector<std::string>{"tokenize",
                                         PRUN_TEST_FIXTURES "/tokenizer/gpt2.json",
                                         sources().corpus(),
                                         "--out",
                                         out,
                                         "--threads",
                                         "1"};
       }}};
  return all;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_hidden(const std::string& name) { return name.starts_with('.'); }

class CleanEnd : public testing::TestWithParam<std::size_t> {
 protected:
  const Verb& verb() const { return verbs()[GetParam()]; }
  std::string out() const { return folder_ / "out"; }
  std::vector<std::string> left() const { return names_in(folder_.path()); }

  // Whether something has been written, so that all that it lies in is locked.
  bool has_bytes() const {
    std::error_code ignored;  // files come and go
    for (fs::recursive_directory_iterator it(folder_.path(), ignored), end; !ignored && it != end;
         it.increment(ignored))
      if (it->is_regular_file(ignored) && it->file_size(ignored) > 0) return true;
    return false;
  }

  // Sends the signal as soon as something unfinished is there.
  int end_in_the_middle(int signal) const {
    StartedPrun command(verb().words(out()));
    while (!command.is_over() && left().empty()) continue;
    command.send(signal);
    return command.wait();
  }

  const TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Verbs, CleanEnd, testing::Range(std::size_t{0}, std::size_t{4}),
                         [](const auto& one) { return std::string(verbs()[one.param].name); });

TEST_P(CleanEnd, ASignalLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(end_in_the_middle(signal), 128 + signal);
    EXPECT_EQ(left(), std::vector<std::string>{}) << signal;
  }
}

TEST_P(CleanEnd, WhatSigkillLeavesGoesWithTheNext) {
  ASSERT_EQ(end_in_the_middle(SIGKILL), -SIGKILL);
  const std::vector<std::string> killed = left();
  ASSERT_FALSE(killed.empty());
  EXPECT_TRUE(std::all_of(killed.begin(), killed.end(), is_hidden)) << killed.front();
  const Result again = prun(verb().words(out()));
  EXPECT_EQ(again.code, 0) << again.out;
  const std::vector<std::string> now = left();
  EXPECT_FALSE(now.empty());
  EXPECT_TRUE(std::none_of(now.begin(), now.end(), is_hidden)) << now.front();
}

TEST_P(CleanEnd, WhatOneAliveWritesIsLeftToIt) {
  StartedPrun first(verb().words(out()));
  while (!first.is_over() && !has_bytes()) continue;
  first.send(SIGSTOP);
  const std::vector<std::string> of_first = left();
  ASSERT_FALSE(of_first.empty());
  ASSERT_TRUE(is_hidden(of_first.front()));
  EXPECT_EQ(prun(verb().words(out())).code, 0);
  const std::vector<std::string> now = left();
  EXPECT_TRUE(std::includes(now.begin(), now.end(), of_first.begin(), of_first.end()));
  first.send(SIGCONT);
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 128 + SIGTERM);
  const std::vector<std::string> end = left();
  EXPECT_TRUE(std::none_of(end.begin(), end.end(), is_hidden));
}

// Commands that write one file at their end, where a signal meets it for a moment alone.
TEST(CleanEndOfOutput, ASignalLeavesNothing) {
  const TempFolder folder;
  const std::string out = folder / "out", config = sources().exported() + "/config.json";
  const std::vector<std::string> commands[] = {
      {"report", sources().run(), "--out", out},
      {"convert", sources().settings(), "--model", config, "--ranks", "1", "--set", "run.steps=1", "--set",
       "model.seq=8", "--set", "data.plugin=text", "--set", "data.path=" + sources().corpus(), "--out", out},
      {"trace", sources().run() + "/recipe.toml", "--steps", "1", "--out", out},
  };
  for (const std::vector<std::string>& words : commands) {
    int hits = 0;
    for (int attempt = 0; attempt < 100 && hits < 3; ++attempt) {
      StartedPrun command(words);
      while (!command.is_over() && names_in(folder.path()).empty()) continue;
      command.send(SIGTERM);
      const int code = command.wait();
      EXPECT_TRUE(code == 0 || code == 128 + SIGTERM || code == -SIGTERM) << code;
      hits += code == 128 + SIGTERM ? 1 : 0;
      for (const std::string& name : names_in(folder.path()))
        EXPECT_FALSE(is_hidden(name)) << words[0] << name;
      fs::remove(out);
    }
    EXPECT_GT(hits, 0) << words[0];
  }
}

}  // namespace
}  // namespace prun::test
