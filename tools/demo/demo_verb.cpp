// Implements prun demo: it runs prun plan, prun RECIPE and prun generate on a recipe and a text of prun's
// own, and shows each command, so that a person sees what prun does right after installing it.
#include <algorithm>
#include <cstdio>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/output.hpp"
#include "demo/demo_text.hpp"
#include "prun/error.hpp"
#include "recipe/toml_writer.hpp"
#include "runs/log.hpp"
#include "runs/words.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- demo verb

namespace fs = std::filesystem;

// Half a minute on two cores. It is on the CPU, which every machine has.
constexpr std::int64_t steps = 600;
constexpr std::string_view recipe_rest = R"(
[model]
plugin = "llama"
layers = 3
hidden = 128
heads = 4
kv_heads = 4
ffn = 344
seq = 128
vocab = 256

[batch]
global = 8
micro = 8

[optimizer]
plugin = "adamw"
lr = 4e-3
betas = [0.9, 0.95]
weight_decay = 0.1
clip = 1.0
schedule = { kind = "cosine", warmup = 20, final = 0.1 }

[device]
plugin = "cpu"

[[observer]]
plugin = "console"
every = 100
)";
constexpr std::string_view prompt = "A strategy ";

struct DemoFiles {
  fs::path recipe, text, run;
};

std::string recipe_of(const DemoFiles& files) {
  recipe::TomlWriter out;
  out.comment("A tiny Llama that learns sentences of prun's documents, byte by byte.");
  out.table("run").value("name", "demo").value("steps", steps).value("out", files.run.string());
  out.value("save_every", steps).value("keep", std::int64_t{1}).value("fresh", true);
  out.table("data").value("plugin", "text").value("path", files.text.string());
  return out.text() + std::string(recipe_rest);
}

DemoFiles write_files(const fs::path& folder) {
  DemoFiles files = {folder / "demo.toml", folder / "text.txt", folder / "run"};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, "cannot make the folder ", in_quotes(folder.string()), ": ",
                error.message(), "; name one that you can write to: prun demo --out FOLDER");
  put_text_file(files.text, prose_of(demo_pages));
  put_text_file(files.recipe, recipe_of(files));
  return files;
}

std::string shown(const std::string& word) {
  return word.find(' ') == std::string::npos ? word : "\"" + word + "\"";
}

// Prints the command, and does what the command line would do, in this process. What `demo` was told by --set
// and --plugin-path goes to each command.
int run_shown(const Arguments& demo, std::vector<std::string> words) {
  for (const std::string& set : demo.sets) words.insert(words.end(), {"--set", set});
  for (const fs::path& path : demo.plugin_paths) words.insert(words.end(), {"--plugin-path", path.string()});
  std::string line = "\n$ prun";
  for (const std::string& word : words) line += " " + shown(word);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  std::vector<std::string> all = std::move(words);
  all.insert(all.begin(), demo.all.front());
  std::vector<char*> argv;
  argv.reserve(all.size());
  for (std::string& word : all) argv.push_back(word.data());
  const Arguments arguments = parse_arguments(static_cast<int>(argv.size()), argv.data());
  const int code = commands_named(arguments.verb, arguments.words).front()->run(arguments);
  std::fflush(stdout);
  return code;
}

void show_curve(const fs::path& run) {
  const RunLog log = read_log(log_of(run));
  std::vector<double> losses;
  for (const LoggedStep& step : log.steps) losses.push_back(step.loss);
  if (losses.empty()) return;
  const std::size_t letters = std::max<std::size_t>(20, std::min<std::size_t>(columns(80), 80) - 20);
  std::printf("\nloss  %s %s %s\n", number_word(losses.front()).c_str(),
              sparkline(losses, letters, speaks_utf8()).c_str(), number_word(losses.back()).c_str());
}

void show_next(const fs::path& run) {
  std::printf(
      "\nNext:\n  %-40s one HTML file: curves, time, memory\n  %-40s a recipe for your text and this "
      "machine\n"
      "  %-40s what this machine has for training\n",
      ("prun report " + shown(run.string())).c_str(), "prun init", "prun doctor");
}

int demo_command(const Arguments& arguments) {
  const DemoFiles files = write_files(arguments.path("--out").value_or("prun-demo"));
  if (const int code = run_shown(arguments, {"plan", files.recipe.string()}); code != 0) return code;
  if (const int code = run_shown(arguments, {files.recipe.string()}); code != 0) return code;
  show_curve(files.run);
  const int code = run_shown(arguments, {"generate", files.run.string(), std::string(prompt), "--max-tokens",
                                         "160", "--temperature", "0.5"});
  if (code == 0) show_next(files.run);
  return code;
}

}  // namespace

std::vector<Command> demo_verb() {
  return {{"demo",
           "",
           "plan and train a tiny model for half a minute on the CPU, and let it write: prun in one look",
           {{"--out", "FOLDER", "the folder for its recipe, text and run; prun-demo"}},
           demo_command}};
}

namespace {

// ------------------------------------------------------------------- prose

bool is_prose(std::string_view line) {
  return line.empty() || std::string_view("|#!<").find(line.front()) == std::string_view::npos;
}

// Of a link only its words are left.
void append_plain(std::string& out, std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.substr(i, 2) == "](") {
      i = std::min(line.find(')', i), line.size());
      continue;
    }
    if (std::string_view("`*[]").find(line[i]) == std::string_view::npos) out += line[i];
  }
  out += '\n';
}

}  // namespace

std::string prose_of(std::string_view pages) {
  std::string out;
  bool code = false;
  for (const std::string_view line : split(pages, '\n')) {
    if (trim(line).starts_with("```"))
      code = !code;
    else if (!code && is_prose(line))
      append_plain(out, line);
  }
  return out;
}

}  // namespace prun
