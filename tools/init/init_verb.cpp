// Implements prun init: three questions, or flags, give a recipe for this machine.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <optional>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "demo/demo_text.hpp"
#include "init/first_recipe.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Sets the value by its option, or by asking on a terminal; else it stays.
void settle(std::string& value, const Arguments& arguments, const std::string& option, const char* question) {
  if (const auto given = arguments.values.find(option); given != arguments.values.end()) {
    value = given->second;
    return;
  }
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) return;
  std::printf("%s [%s] ", question, value.c_str());
  std::fflush(stdout);
  std::string answer;
  if (std::getline(std::cin, answer) && !answer.empty()) value = answer;
}

// Writes a new file; it never replaces another one.
void write_new(const fs::path& file, const std::string& text) {
  const FileDescriptor created(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!created.is_open() && errno == EEXIST)
    throw_error(ErrorCode::bad_input, file.string(), " is there already; name another with --out");
  if (!created.is_open()) throw_storage_error("creating", file, errno);
  write_fully(created.get(), std::as_bytes(std::span(text)), file);
}

constexpr const char* sample_name = "sample.txt";

// Says whether this folder has nothing but hidden entries.
bool is_empty_here() {
  std::error_code ignored;
  const fs::directory_iterator entries(".", ignored);
  return std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return entry.path().filename().native().starts_with('.');
  });
}

// Writes a text of prun's own to train on, for a user who has none here; without a recipe it goes again.
class SampleText {
 public:
  SampleText() { write_new(sample_name, prose_of(demo_pages)); }
  ~SampleText() {
    if (std::error_code ignored; !kept_) fs::remove(sample_name, ignored);
  }
  SampleText(const SampleText&) = delete;
  SampleText& operator=(const SampleText&) = delete;

  void keep() {
    kept_ = true;
    std::printf(
        "this folder is empty: wrote %s, sentences of prun's documents to train on; --data names a "
        "text of yours\n",
        sample_name);
  }

 private:
  bool kept_ = false;
};

// Writes a recipe that trains a model of Hugging Face further on conversations.
int init_finetune(const Arguments& arguments, const fs::path& file) {
  FinetuneRequest request;
  request.name = file.stem().string();
  request.from = *arguments.path("--from");
  if (std::error_code ignored; !fs::is_directory(request.from, ignored))
    throw_error(ErrorCode::not_found, "--from: there is no folder ", in_quotes(request.from.string()),
                "; prun loads nothing from a hub: fetch the model first, as by `hf download NAME --local-dir "
                "FOLDER`");
  const std::optional<fs::path> data = arguments.path("--data");
  if (!data)
    throw_error(ErrorCode::bad_input, "--from goes with --data PATH, conversations to train on, one a line");
  request.data = *data;
  if (const auto named = arguments.values.find("--template"); named != arguments.values.end())
    request.chat_template = named->second;
  if (const auto adapter = arguments.values.find("--adapter"); adapter != arguments.values.end()) {
    if (adapter->second != "lora")
      throw_error(ErrorCode::bad_input, "--adapter takes lora, not ", in_quotes(adapter->second));
    request.lora = true;
  }
  request.ranks = arguments.number("--ranks", 0);
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  write_new(file, finetune_recipe(request, plugins));
  std::printf("wrote %s\n  prun data show %s\n  prun plan %s\n  prun %s\n", file.c_str(), file.c_str(),
              file.c_str(), file.c_str());
  return 0;
}

int init_command(const Arguments& arguments) {
  const fs::path file = arguments.path("--out").value_or("recipe.toml");
  if (std::error_code ignored; fs::exists(file, ignored))
    throw_error(ErrorCode::bad_input, file.string(), " is there already; name another with --out");
  if (arguments.values.count("--from") != 0) return init_finetune(arguments, file);
  for (const char* option : {"--template", "--adapter"})
    if (arguments.values.count(option) != 0)
      throw_error(ErrorCode::bad_input, option, " goes with --from, the model to go on from");
  RecipeRequest request;
  request.name = file.stem().string();
  settle(request.model, arguments, "--model", "Which model: gpt, llama, or a path to a config.json?");
  settle(request.data, arguments, "--data",
         "Which data: a text file, a folder of them, or tokens (.bin, .idx)?");
  settle(request.goal, arguments, "--goal", "What for: quick, a run of a minute, or train, a model to keep?");
  request.ranks = arguments.number("--ranks", 0);
  std::optional<SampleText> sample;
  if (request.data == "." && arguments.values.count("--data") == 0 && is_empty_here()) {
    sample.emplace();
    request.data = sample_name;
  }
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  write_new(file, first_recipe(request, plugins));
  if (sample) sample->keep();
  std::printf("wrote %s\n  prun check %s\n  prun plan %s\n  prun %s\n", file.c_str(), file.c_str(),
              file.c_str(), file.c_str());
  return 0;
}

}  // namespace

std::vector<Command> init_verb() {
  return {{"init",
           "",
           "write a recipe for this machine, by the answers to three questions or by options",
           {{"--from", "FOLDER", "a model of Hugging Face to go on training, on the conversations of --data"},
            {"--template", "NAME|FILE",
             "of these conversations: chatml, llama3, mistral, gemma, or a file; own, the tokenizer's"},
            {"--adapter", "lora", "train small matrices beside the weights, which stay as they are"},
            {"--model", "gpt|llama|PATH", "the kind of model, or a config.json of Hugging Face; gpt"},
            {"--data", "PATH",
             "a text file, a folder of them, or tokens (.bin, .idx); this folder, or a text of prun's own if "
             "it is empty"},
            {"--goal", "quick|train", "a run of a minute, or a model to keep; quick"},
            {"--ranks", "N", "how many, which share out the batch; one for each GPU, or one"},
            {"--out", "FILE", "where to, recipe.toml; never over another file"}},
           init_command}};
}

}  // namespace prun
