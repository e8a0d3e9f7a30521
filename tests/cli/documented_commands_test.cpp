// Every command in docs/*.md is run, in a folder that has what the text says is there, or is in a block whose
// first line says why it is not: "# elsewhere: …". README.md has few commands; those of its recipe are listed
// here.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "base/json.hpp"
#include "binary.hpp"
#include "documents.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// What docs/limits.md says there is not more of: the words in `quotes` after a phrase, up to the next full
// stop.
std::set<std::string> listed_behind(const std::string& phrase) {
  const std::string text = document_text(document_root / "docs/limits.md");
  const std::size_t begin = text.find(phrase);
  EXPECT_NE(begin, std::string::npos) << phrase;
  const std::string sentence = text.substr(begin, text.find_first_of(".;(", begin + phrase.size()) - begin);
  std::set<std::string> words;
  const std::regex quoted("`([a-z0-9_-]+)`");
  for (std::sregex_iterator at(sentence.begin(), sentence.end(), quoted), end; at != end; ++at)
    words.insert((*at)[1]);
  return words;
}

std::set<std::string> names_of(const std::string& kind) {
  std::set<std::string> names;
  const JsonValue all = parse_json(prun({"plugins", "list", "--json"}).out, "plugins");
  for (const JsonValue& plugin : all.as_array())
    if (plugin.at("kind").as_string() == kind) names.insert(plugin.at("name").as_string());
  return names;
}

std::set<std::string> choices_of(const std::string& key) {
  const std::string text = prun({"explain", key}).out, phrase = "one of ";
  std::istringstream list(text.substr(text.find(phrase) + phrase.size()));
  std::set<std::string> choices;
  for (std::string word; list >> word;) {
    const bool last = word.back() != ',';
    if (!last) word.pop_back();
    choices.insert(word);
    if (last) break;
  }
  return choices;
}

TEST(Documented, WhatIsNotThereYetIsNot) {
  EXPECT_EQ(listed_behind("The model plugins are"), names_of("model"));
  EXPECT_EQ(listed_behind("The optimizer plugins are `adafactor`, `adamw`, `lion`, `muon`, `onebit_adam` and "
                          "`sgd`, the schedules"),
            [] {
              std::set<std::string> all = names_of("optimizer");
              all.merge(choices_of("optimizer.schedule.kind"));
              return all;
            }());
  std::set<std::string> formats = listed_behind("`precision.compute` takes");
  EXPECT_EQ(formats, choices_of("precision.compute"));
}

// A command without the remark that follows it.
std::string command_of(const std::string& line) {
  const std::size_t remark = line.find("  #");
  std::string command = remark == std::string::npos ? line : line.substr(0, remark);
  command.erase(command.find_last_not_of(' ') + 1);
  return command.find_first_not_of(' ') == std::string::npos || command[0] == '#' || line[0] == ' ' ? ""
                                                                                                    : command;
}

// Those of a document that are run here.
std::vector<std::string> commands_of(const std::string& name) {
  std::vector<std::string> commands;
  for (const DocumentBlock& block : document_blocks(document_root / name)) {
    if (!block.has_commands() || block.is_elsewhere()) continue;
    for (const std::string& line : block.lines)
      if (const std::string command = command_of(line); !command.empty()) commands.push_back(command);
  }
  return commands;
}

// A folder of its own with `prun` on the path, and a home that is empty. Text to train on lies in it.
fs::path workplace(const std::string& name) {
  fs::path folder = temporary_folder() / name;
  fs::create_directories(folder / "bin");
  fs::create_symlink(PRUN_TEST_BINARY, folder / "bin" / "prun");
  for (const char* each : {"trust.md", "data.md"})
    fs::copy_file(document_root / "docs" / each, folder / each);
  return folder;
}

void run_all(const fs::path& folder, const std::vector<std::string>& commands,
             const std::map<std::string, std::string>& quicker = {}) {
  EXPECT_FALSE(commands.empty());
  for (const std::string& command : commands) {
    std::string line = command;
    if (const auto more = quicker.find(command); more != quicker.end()) line += " " + more->second;
    const Result result =
        shell("cd " + folder.string() + " && export HOME=" + folder.string() +
              "/home PATH=$PWD/bin:$PATH && unset XDG_CACHE_HOME && " + line + " </dev/null");
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out;
  }
}

// A recipe of four steps of a tiny model.
std::string in_small(std::string text) {
  int changed = 0;
  for (const auto& [from, to] : {std::pair("steps = 200", "steps = 4"),
                                 {"save_every = 100", "save_every = 2"},
                                 {"hidden = 256", "hidden = 32"},
                                 {"ffn = 688", "ffn = 64"},
                                 {"seq = 256", "seq = 32"},
                                 {"layers = 4", "layers = 2"}})
    if (const std::size_t at = text.find(from); at != std::string::npos) {
      text.replace(at, std::string(from).size(), to);
      ++changed;
    }
  EXPECT_GE(changed, 5) << text;
  return text;
}

// The recipe that README.md shows, and the blocks of output below it.
struct ShownRun {
  std::string recipe;
  std::vector<DocumentBlock> outputs;
};
ShownRun shown_in_the_readme() {
  ShownRun shown;
  for (DocumentBlock& block : document_blocks(document_root / "README.md")) {
    if (block.language == "toml") shown.recipe = block.text();
    if (block.language == "text") shown.outputs.push_back(std::move(block));
  }
  return shown;
}

// The same with saves and data that is kept for validation.
std::string first_recipe() {
  std::string recipe = shown_in_the_readme().recipe;
  for (const auto& [from, to] : {std::pair("steps = 200", "steps = 200, save_every = 100"),
                                 {"path = \".\"", "path = \".\", validation = 0.05"}}) {
    const std::size_t at = recipe.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) recipe.replace(at, std::string(from).size(), to);
  }
  return in_small(recipe);
}

// The test does what a person does with a recipe, verb by verb.
const std::vector<std::string> commands_of_a_first_recipe = {
    "prun init --out mine.toml",
    "prun check first.toml",
    "prun plan first.toml",
    "prun bench kernels first.toml",
    "prun tune first.toml --write best.toml",
    "prun bench zero first.toml",
    "prun verify first.toml",
    "prun trace first.toml",
    "prun first.toml --set optimizer.lr=3e-4",
    "prun runs",
    "prun report runs/first",
    "prun eval runs/first",
    "prun data show first.toml",
    "prun generate runs/first \"Once upon a\"",
    "prun ckpt verify runs/first",
    "prun export runs/first --out first-hf",
    "prun explain optimizer.clip",
    "prun doctor first.toml",
    "prun reference --json-schema > recipe.schema.json",
    "prun plugins list",
    "prun plugins new strategy mine"};

// The recipes that a page tells its reader to make.
void make_files_of(const std::string& name, const fs::path& folder) {
  int made = 0;
  for (const DocumentBlock& block : document_blocks(document_root / name)) {
    if (block.file_name().empty()) continue;
    write(folder / block.file_name(), block.text());
    ++made;
  }
  EXPECT_GT(made, 0) << name;
}

TEST(DocumentedCommands, EachIsRunHereOrSaysWhyNot) {
  const std::set<std::string> run = {"docs/clusters.md",
                                     "docs/coming-from.md",
                                     "docs/data.md",
                                     "docs/hugging_face.md",
                                     "docs/strategies.md",
                                     "docs/tutorials/first_run.md",
                                     "docs/tutorials/your_checkpoint.md",
                                     "docs/tutorials/eight_gpus.md",
                                     "docs/tutorials/one_large_node.md",
                                     "docs/tutorials/two_hosts.md"};
  const std::set<std::string> install = {"README.md", "docs/install.md"};  // or build, or take minutes
  for (const std::string& document : all_documents())
    for (const DocumentBlock& block : document_blocks(document_root / document)) {
      if (install.count(document) != 0) continue;
      ASSERT_FALSE(block.lines.empty()) << document;
      const bool run_or_marked = !block.has_commands() || block.is_elsewhere() || run.count(document) != 0;
      EXPECT_TRUE(run_or_marked) << document << ": nobody runs\n" << block.lines.front();
    }
}

// They install or take minutes; other tests run what they start (demo_test.cpp, .ci/run).
TEST(DocumentedCommands, OfTheReadmeInstallAndBegin) {
  const std::vector<std::string> known = {"tools/package && pip install build-package/prun_runtime-*.whl",
                                          "prun demo", "tools/quickstart", "tools/test"};
  EXPECT_EQ(commands_of("README.md"), known);
}

// All of the plan but what the machine decides, and the form of a step's line.
TEST(DocumentedCommands, TheReadmeShowsWhatItsRecipePrints) {
  const fs::path folder = workplace("shown");
  const ShownRun shown = shown_in_the_readme();
  write(folder / "first.toml", shown.recipe);
  ASSERT_EQ(shown.outputs.size(), 2U);
  const std::string plan = shell("cd " + folder.string() +
                                 " && $PRUN plan first.toml --set device.plugin=cpu --set device.threads=1")
                               .out;
  for (const std::string& line : shown.outputs[0].lines)
    EXPECT_NE(plan.find(line + "\n"), std::string::npos) << line << "\nis not in\n" << plan;
  const std::string run =
      shell("cd " + folder.string() + " && $PRUN first.toml --set device.plugin=cpu --set run.steps=2").out;
  for (const std::string& line : shown.outputs[1].lines) {
    const std::string step = line.substr(0, line.find("/200"));
    EXPECT_NE(run.find(step + "/2 | loss "), std::string::npos) << line << "\nis not in\n" << run;
  }
}

// Of other machines, too, a recipe that is named is one that prun reads.
TEST(DocumentedCommands, RecipesThatAreNamedCanBeRead) {
  const std::regex recipe("configs/[A-Za-z0-9._-]+\\.toml");
  std::set<std::string> names;
  for (const std::string& document : all_documents()) {
    const std::string text = document_text(document_root / document);
    for (std::sregex_iterator at(text.begin(), text.end(), recipe), end; at != end; ++at)
      names.insert(at->str());
  }
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) {
    const Result result =
        prun({"explain", "optimizer.lr", (document_root / name).string(), "--set", "device.plugin=cpu"});
    EXPECT_EQ(result.code, 0) << name << result.out;
  }
}

TEST(DocumentedCommands, OfAFirstRecipeAndOfExporting) {
  const fs::path folder = workplace("first");
  write(folder / "first.toml", first_recipe());
  run_all(folder, commands_of_a_first_recipe, {{"prun bench kernels first.toml", "--no-grid"}});
  EXPECT_TRUE(fs::exists(folder / "first-hf" / "config.json"));
  fs::copy(folder / "runs/first/step-00000004", folder / "runs/first/step-00001000",
           fs::copy_options::recursive);
  fs::create_directories(folder / "models");
  run_all(folder, commands_of("docs/hugging_face.md"));
}

TEST(DocumentedCommands, OfData) {
  const fs::path folder = workplace("data");
  fs::copy_file(document_root / "tests/fixtures/tokenizer/gpt2.json", folder / "tokenizer.json");
  write(folder / "corpus/a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"another one\"}\n");
  fs::create_directories(folder / "data");
  run_all(folder, commands_of("docs/data.md"));
}

TEST(DocumentedCommands, OfStrategies) {
  const fs::path folder = workplace("strategies");
  write(folder / "run.toml", first_recipe());
  run_all(folder, commands_of("docs/strategies.md"),
          {{"prun bench kernels run.toml --set batch.order=auto", "--no-grid"}});
}

TEST(DocumentedCommands, OfClusters) { run_all(workplace("clusters"), commands_of("docs/clusters.md")); }

TEST(DocumentedCommands, OfComingFromElsewhere) {
  const fs::path folder = workplace("elsewhere");
  write(folder / "ds_config.json",
        R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})");
  fs::copy_file(document_root / "tests/fixtures/hugging_face/llama/config.json", folder / "config.json");
  write(folder / "train_gpt.sh",
        "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
        "\\\n"
        "  --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 4 "
        "--train-iters 10 --lr 1e-4\n");
  write(folder / "llama3_8b.toml",
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\nsteps = 10\n");
  for (const std::string& command : commands_of("docs/coming-from.md"))
    run_all(folder, {command,
                     "prun check run.toml --set model.layers=2 --set model.hidden=64 --set model.heads=8 "
                     "--set model.ffn=128 --set model.vocab=256 --set model.seq=64"});
}

TEST(DocumentedCommands, OfTheFirstRun) {
  run_all(workplace("first-run"), commands_of("docs/tutorials/first_run.md"),
          {{"prun init --model gpt --data . --goal quick --ranks 2 --out first.toml",
            "&& sed -i 's/^hidden = 256/hidden = 32/; s/^layers = 4/layers = 2/; s/^seq = 256/seq = 32/' "
            "first.toml"}});
}

TEST(DocumentedCommands, OfYourCheckpoint) {
  const fs::path folder = workplace("checkpoint"), chat = document_root / "tests/fixtures/chat";
  fs::create_directories(folder / "models");
  fs::copy(chat / "chatml", folder / "models/Qwen2.5-0.5B-Instruct");
  fs::copy_file(chat / "chats.jsonl", folder / "chats.jsonl");
  run_all(folder, commands_of("docs/tutorials/your_checkpoint.md"));
  EXPECT_TRUE(fs::exists(folder / "models/adapter/adapter_config.json"));
}

TEST(DocumentedCommands, OfEightGpus) {
  if (names_of("device").count("cuda") == 0) GTEST_SKIP() << "there is no device cuda";
  const fs::path folder = workplace("eight");
  make_files_of("docs/tutorials/eight_gpus.md", folder);
  run_all(folder, commands_of("docs/tutorials/eight_gpus.md"));
}

TEST(DocumentedCommands, OfOneLargeNode) {
  if (names_of("device").count("cuda") == 0) GTEST_SKIP() << "there is no device cuda";
  const fs::path folder = workplace("node");
  make_files_of("docs/tutorials/one_large_node.md", folder);
  run_all(folder, commands_of("docs/tutorials/one_large_node.md"));
}

TEST(DocumentedCommands, OfTwoHosts) {
  const fs::path folder = workplace("two-hosts");
  make_files_of("docs/tutorials/two_hosts.md", folder);
  write(folder / "two.toml", in_small(document_text(folder / "two.toml")));
  // A port of its own: another test run may be under way.
  std::vector<std::string> commands = commands_of("docs/tutorials/two_hosts.md");
  const std::string port = std::to_string(20000 + getpid() % 10000);
  for (std::string& command : commands) command = std::regex_replace(command, std::regex("29611"), port);
  run_all(folder, commands);
}

}  // namespace
}  // namespace prun::test
