// What the table of commands becomes: help, a manual page, completion in real shells.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/text.hpp"
#include "binary.hpp"
#include "cli/command_table.hpp"
#include "cli/manual.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

bool is_here(const std::string& program) { return shell("command -v " + program).code == 0; }

// As a manual page writes it.
std::string escaped(std::string_view option) {
  std::string out;
  for (const char c : option) out += c == '-' ? "\\-" : std::string(1, c);
  return out;
}

// Commands share names of options: with a value in one, without in another.
TEST(Help, EveryOptionIsReadAsItsOwnCommandHasIt) {
  for (const Command& command : commands())
    for (const CommandOption& option : command.options) {
      std::vector<std::string> words = {"prun"};
      for (const std::string_view word : split(command.name, ' ')) words.emplace_back(word);
      words.emplace_back(option.name);
      if (!option.value.empty()) words.emplace_back("1");
      words.emplace_back("--help");
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      const Arguments read = parse_arguments(static_cast<int>(argv.size()), argv.data());
      const std::string name(option.name);
      EXPECT_EQ(option.value.empty() ? read.has(name) : read.values.contains(name), true)
          << command.name << " " << name;
    }
}

TEST(Help, NamesEveryCommandAndOption) {
  const std::string all = prun({"--help"}).out, page = prun({"man"}).out;
  for (const Command& command : commands()) {
    EXPECT_NE(all.find(usage_of(command)), std::string::npos) << command.name;
    const Result own = shell("$PRUN " + std::string(command.name) + " --help");
    EXPECT_EQ(own.code, 0);
    for (const CommandOption& option : command.options) {
      EXPECT_NE(own.out.find(std::string(option.name)), std::string::npos) << command.name << own.out;
      EXPECT_NE(page.find(escaped(option.name)), std::string::npos) << option.name;
    }
  }
  for (const ExitCode& code : exit_codes())
    EXPECT_NE(all.find(std::string(code.meaning).substr(0, 40)), std::string::npos) << code.code;
}

// Once each, in the order in which a person needs them.
TEST(Help, GroupsEveryCommand) {
  const std::string all = prun({"--help"}).out, page = prun({"man"}).out;
  std::size_t last = 0;
  for (const char* const heading : {"Begin", "Write a recipe", "Prepare data", "Train", "Look at runs",
                                    "Use what was trained", "Extend", "Look up"}) {
    const std::size_t at = all.find("\n" + std::string(heading) + ":\n");
    EXPECT_NE(at, std::string::npos) << heading;
    EXPECT_GT(at, last) << heading;
    EXPECT_NE(page.find("\n.SS " + std::string(heading) + "\n"), std::string::npos) << heading;
    last = at;
  }
  for (const Command& command : commands()) {
    std::size_t times = 0;
    for (std::string line, name = "  " + usage_of(command); const char ends : {' ', '\n'})
      for (std::size_t at = all.find(name + ends); at != std::string::npos;
           at = all.find(name + ends, at + 1))
        times += all[at - 1] == '\n';
    EXPECT_EQ(times, 1U) << usage_of(command) << "\n" << all;
  }
}

// A prun that was linked without the programs beside training has no verb of theirs, and says who has.
TEST(Help, ListsWhatWasLinkedAndNothingElse) {
  const auto alone = [](const std::string& words) { return shell(PRUN_TEST_TRAINING_ALONE " " + words); };
  const std::string all = alone("--help").out;
  const std::set<std::string_view> linked = {"run",     "check",    "plan",      "verify",
                                             "explain", "ops list", "reference", "completion",
                                             "man",     "help",     "version"};
  for (const Command& command : commands()) {
    const bool is_listed = all.find(usage_of(command)) != std::string::npos;
    EXPECT_EQ(is_listed, linked.contains(command.name)) << command.name;
    if (is_listed) continue;
    const Result refused = alone(std::string(command.name));
    EXPECT_EQ(refused.code, 2) << command.name;
    EXPECT_NE(refused.out.find("tools/build adds the other commands"), std::string::npos) << refused.out;
  }
  EXPECT_EQ(alone("check " PRUN_SOURCE_DIR "/configs/gpt2-124m.toml --set device.plugin=cpu "
                  "--set data.path=" PRUN_SOURCE_DIR "/docs --quiet")
                .code,
            0);
}

TEST(Help, KeepsToTheWidth) {
  for (const char* command : {"help", "plan --help"})
    for (const std::size_t width : {60u, 90u}) {
      const Result help = shell("COLUMNS=" + std::to_string(width) + " $PRUN " + command);
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
    }
}

TEST(Help, AnOptionOfAnotherCommandIsRefused) {
  const Result result = prun({"check", "any.toml", "--program"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("prun check RECIPE has no option --program"), std::string::npos) << result.out;
  EXPECT_EQ(prun({"bench", "comm", "--no-grid"}).code, 2);
  EXPECT_EQ(prun({"--json", "plugins", "list"}).code, 0);
}

TEST(ManualPage, IsOneForManAndMandoc) {
  if (!is_here("groff") && !is_here("mandoc")) GTEST_SKIP() << "neither groff nor mandoc is here";
  if (is_here("groff")) {
    const Result shown = shell("$PRUN man | groff -man -Tutf8 -ww -b -z");
    EXPECT_EQ(shown.code, 0);
    EXPECT_EQ(shown.out, "");
  }
  if (is_here("mandoc")) {
    EXPECT_EQ(shell("$PRUN man | mandoc -T lint -W error").out, "");
  }
  if (is_here("man")) {
    EXPECT_NE(shell("$PRUN man | man -l - | cat").out.find("EXIT STATUS"), std::string::npos);
  }
}

// What bash would offer for the last of these words, in a folder with a recipe, another file and a run.
std::string offered(const std::string& words) {
  const std::string folder = "D=$(mktemp -d) && cd $D && touch 'a b.toml' c.txt && mkdir d && ";
  return shell(folder + "bash -c 'source <($0 completion bash) && COMP_WORDS=(prun " + words +
               ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _prun && printf \"%s\\n\" \"${COMPREPLY[@]}\" "
               "| sort' "
               "$PRUN; rm -r $D")
      .out;
}

TEST(Completion, BashOffersWhatFits) {
  EXPECT_EQ(offered("be"), "bench\n");
  EXPECT_EQ(offered("bench k"), "kernels\n");
  EXPECT_EQ(offered("bench kernels \"\""), "a b.toml\nd\n");
  EXPECT_EQ(offered("bench kernels --n"), "--no-grid\n");
  EXPECT_EQ(offered("bench ze"), "zero\n");
  EXPECT_EQ(offered("bench zero \"\""), "a b.toml\nd\n");
  EXPECT_EQ(offered("bench zero --se"), "--set\n--setting\n");
  EXPECT_EQ(offered("check a"), "a b.toml\n");
  EXPECT_EQ(offered("ckpt show \"\""), "d\n");
  EXPECT_EQ(offered("ckpt diff d \"\""), "d\n");
  EXPECT_EQ(offered("tokenize c.txt c.txt c"), "c.txt\n");
  EXPECT_EQ(offered("report d d \"\""), "d\n");
  EXPECT_EQ(offered("export d --type \"\""), "bf16\nfp16\nfp32\n");
  EXPECT_EQ(offered("plan --set optimizer.lr = 1 a"), "a b.toml\n");
  EXPECT_EQ(offered("plan --set optimizer.plu"), "optimizer.plugin=\n");
  EXPECT_EQ(offered("plan --set strategy.0.sta"), "strategy.0.stage=\nstrategy.0.statistics_every=\n");
  EXPECT_EQ(offered("plan --set optimizer.plugin ="), "adafactor\nadamw\nlion\nmuon\nonebit_adam\nsgd\n");
  EXPECT_EQ(offered("plan --set optimizer.plugin = ad"), "adafactor\nadamw\n");
  EXPECT_EQ(offered("plan --set optimizer.plugin=ad"),
            "optimizer.plugin=adafactor\noptimizer.plugin=adamw\n");
  EXPECT_EQ(offered("plan a.toml --set run.poison = \"\""), "false\ntrue\n");
  EXPECT_EQ(offered("init --model \"\""), "a b.toml\nc.txt\nd\ngpt\nllama\n");
  EXPECT_EQ(offered("plan --lo"), "--lowered\n");
  EXPECT_EQ(offered("check --lo"), "\n");
  EXPECT_EQ(offered("completion \"\""), "bash\nzsh\n");
  EXPECT_NE(offered("\"\"").find("a b.toml\n"), std::string::npos);
}

TEST(Completion, ZshReadsItsScript) {
  if (!is_here("zsh")) GTEST_SKIP() << "no zsh is here";
  EXPECT_EQ(shell("$PRUN completion zsh | zsh -n").out, "");
  // What would be offered, with zsh's own functions in the place of what only works in its editor.
  const auto in_zsh = [](const std::string& words) {
    return shell(
               "zsh -fc 'compdef() { : }; _files() { print -- files $@ }; compadd() { print -- $@ }; "
               "eval \"$($0 completion zsh)\"; words=(prun " +
               words + "); CURRENT=${#words}; _prun' $PRUN")
        .out;
  };
  EXPECT_EQ(in_zsh("bench k"), "-- kernels comm io settings offload recompute zero\n");
  EXPECT_EQ(in_zsh("check a"), "files -g *.toml\n");
  EXPECT_EQ(in_zsh("export d --type \"\""), "-- bf16 fp32\n");
  EXPECT_EQ(in_zsh("ckpt show \"\""), "files -/\n");
  EXPECT_NE(in_zsh("plan --set opt").find(" optimizer.lr "), std::string::npos);
  EXPECT_EQ(in_zsh("plan --set optimizer.plugin="), "-- optimizer.plugin=adamw optimizer.plugin=sgd\n");
}

TEST(Completion, KnowsTwoShells) {
  const Result result = prun({"completion", "fish"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("bash and zsh"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace prun::test
