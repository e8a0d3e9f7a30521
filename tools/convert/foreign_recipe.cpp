#include "convert/foreign_recipe.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "convert/transfer.hpp"
#include "recipe/recipe.hpp"
#include "recipe/toml_reader.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- recipes of other trainers

namespace fs = std::filesystem;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

// Is a setting that a recipe cannot do without.
struct Needed {
  const char* key;
  const char* flag;
  const char* what;
  bool of_shape = false;  // says that a config.json has it as well
};
constexpr std::array needed = {
    Needed{"run.steps", "--set run.steps=N", "how many optimizer steps to take"},
    Needed{"model.plugin", "--model CONFIG.json",
           "which model, as a config.json of Hugging Face, or by --set model.plugin=llama and its options",
           true},
    Needed{"model.layers", "--set model.layers=N", "how many blocks, or --model CONFIG.json", true},
    Needed{"model.hidden", "--set model.hidden=N", "how wide, or --model CONFIG.json", true},
    Needed{"model.heads", "--set model.heads=N", "how many heads, or --model CONFIG.json", true},
    Needed{"model.vocab", "--set model.vocab=N", "rows of the token table, or --model CONFIG.json", true},
    Needed{"model.seq", "--set model.seq=N", "tokens of a sequence"},
    Needed{"data.plugin", "--set data.plugin=tokens --set data.path=PREFIX",
           "what to train on (docs/data.md), or data.plugin=text"},
    Needed{"batch.global", "--set batch.global=N", "sequences a step"},
    Needed{"batch.micro", "--set batch.micro=N", "sequences that a rank takes at once"},
    Needed{"optimizer.plugin", "--set optimizer.plugin=adamw", "which optimizer"},
    Needed{"optimizer.lr", "--set optimizer.lr=X", "the learning rate at its peak"},
};

// Recipes are UTF-8, and so must be the text that goes into them.
std::string read(const fs::path& file) {
  std::string text = whole_file(file, most_bytes);
  const std::size_t end = std::min(valid_utf8_start(text), text.find('\0'));
  if (end < text.size())
    throw_error(ErrorCode::bad_input, file.string(), ": byte ", end,
                " is no letter of UTF-8; save the configuration as text");
  return text;
}

Transfer converted_source(const fs::path& file, const std::string& text, const Given& given) {
  const std::string_view inside = trim(text);
  if (inside.starts_with('{')) {
    Transfer transfer("DeepSpeed", given);
    convert_deepspeed(transfer, parse_json(text, file.string()));
    return transfer;
  }
  if (file.extension() == ".toml" || (inside.starts_with('[') && !inside.starts_with("[["))) {
    recipe::Diagnostics diagnostics;
    const auto source = std::make_shared<const recipe::Source>(
        recipe::Source{file.string(), text, 0, recipe::Source::Kind::file});
    const std::optional<recipe::Node> root = recipe::read_toml(source, diagnostics);
    diagnostics.throw_if_any();
    Transfer transfer("torchtitan", given);
    convert_torchtitan(transfer, *root);
    return transfer;
  }
  if (file.extension() == ".yaml" || file.extension() == ".yml") {
    Transfer transfer("axolotl", given);
    convert_axolotl(transfer, text);
    return transfer;
  }
  const ShellCommand command = read_shell(text, file.string());
  if (command.arguments.empty())
    throw_error(ErrorCode::bad_input, file.string(),
                ": neither a DeepSpeed JSON, a torchtitan TOML, a YAML of axolotl, nor a script or a text "
                "with the arguments of "
                "Megatron-LM");
  Transfer transfer("Megatron-LM", given);
  convert_megatron(transfer, command);
  return transfer;
}

// A reason says which setting it is about; this adds which file.
Transfer read_source(const fs::path& file, const Given& given) {
  const std::string text = read(file);
  try {
    return converted_source(file, text, given);
  } catch (const Error& error) {
    const std::string reason = error.what(), name = file.string();
    if (reason.starts_with(name)) throw;
    throw_error(error.code(), name, ": ", reason);
  }
}

void ask_for_missing(Transfer& transfer) {
  for (const Needed& each : needed)
    if (!transfer.knows(each.key) &&
        !(each.of_shape && (!transfer.given().model.empty() || transfer.knows("model.init"))))
      transfer.ask(each.flag, each.what);
}

void refuse_if_asked(const Transfer& transfer, const fs::path& file) {
  if (transfer.asked().empty()) return;
  std::string text =
      detail::concat(file.string(), " does not say all that a recipe needs; give prun convert as well:");
  for (const auto& [flag, what] : transfer.asked()) text += detail::concat("\n  ", flag, "   ", what);
  throw_error(ErrorCode::bad_input, text);
}

std::string name_of(const fs::path& file) {
  std::string name;
  for (const char c : file.stem().string())
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ? c : '-';
  return name;
}

// Adds the values of the command line, as the schemas type them.
void take_sets(Transfer& transfer, const Given& given, const std::string& name,
               const recipe::PluginCatalog& catalog) {
  for (const std::string& set : given.sets)
    for (const char* list : {"strategy.", "observer.", "data.blend.", "validation."})
      if (set.starts_with(list))
        throw_error(ErrorCode::bad_input, "--set ", set,
                    ": edit the recipe instead, which convert writes without it");
  recipe::TomlWriter tables;
  transfer.write_tables(tables);
  const recipe::Recipe checked = recipe::Recipe::parse(tables.text(), name, given.sets, catalog);
  for (const std::string& set : given.sets) {
    const std::string key(trim(std::string_view(set).substr(0, set.find('='))));
    recipe::Value value = *checked.entry(key).value;
    std::string origin = "--set " + key;
    if (key == "model.vocab" && transfer.rows_multiple() > 1) {
      value = transfer.padded(checked.integer(key));
      origin += detail::concat(", padded to a multiple of ", transfer.rows_multiple());
    }
    transfer.set(key, std::move(value), origin);
  }
}

}  // namespace

Converted convert_file(const fs::path& file, const Given& given, const recipe::PluginCatalog& catalog) {
  Transfer transfer = read_source(file, given);
  transfer.set_text("run.name", name_of(file), "the name of the file");
  if (!given.model.empty()) transfer.set_text("model.config", given.model, "--model");
  transfer.keep_console();
  ask_for_missing(transfer);
  refuse_if_asked(transfer, file);
  take_sets(transfer, given, file.string() + " as a recipe", catalog);
  Converted converted;
  converted.account = transfer.account_lines();
  recipe::TomlWriter out;
  for (const std::string& line : converted.account) out.comment(line);
  transfer.write_tables(out);
  converted.recipe = recipe_mark + std::string("\n") + out.text();
  return converted;
}

}  // namespace prun::convert

namespace prun {
namespace {

// ------------------------------------------------------------------- convert verb
// Implements prun convert: it writes a recipe from the configuration of another framework.

int convert_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  convert::Given given;
  if (arguments.values.count("--ranks") != 0) given.ranks = arguments.number("--ranks", 1);
  if (const auto model = arguments.path("--model")) given.model = model->string();
  given.sets = arguments.sets;
  const auto out = arguments.path("--out");
  const OutputKind kind{"a recipe of prun convert", convert::recipe_mark};
  if (out) check_output(*out, kind);
  PluginHost plugins(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const convert::Converted converted = convert::convert_file(file, given, plugins.catalog());
  if (!out) {
    std::fputs(converted.recipe.c_str(), stdout);
    return 0;
  }
  write_cleanly(*out, converted.recipe, kind);
  for (const std::string& line : converted.account) std::printf("%s\n", line.c_str());
  std::printf("%s is written; next: prun check %s\n", out->c_str(), out->c_str());
  return 0;
}

}  // namespace

std::vector<Command> convert_verb() {
  return {{"convert",
           "FILE",
           "a recipe from a DeepSpeed JSON, the arguments of Megatron-LM (a script, or a text), a torchtitan "
           "TOML "
           "or a YAML of axolotl; every setting is carried over, refused or listed",
           {{"--out", "RECIPE", "where to; standard output"},
            {"--model", "CONFIG", "the model, as a config.json of Hugging Face"},
            {"--ranks", "N", "how many ranks there are"}},
           convert_command}};
}

}  // namespace prun
