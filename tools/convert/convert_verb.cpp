// Implements prun convert: it writes a recipe from the configuration of another framework.
#include <cstdio>

#include "base/output_file.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "convert/foreign_recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

namespace {

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
