// Implements prun check: it says everything that is wrong with a recipe, and runs nothing.
#include <cstdio>
#include <functional>

#include "base/json.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "train/assemble/one_host.hpp"
#include "train/loop/preflight.hpp"

namespace prun {
namespace {

// Prints the result of checking, for programs: an Error is part of the answer.
int check_for_programs(const std::string& file, const std::function<std::string()>& check) {
  JsonWriter json;
  json.begin_object().member("recipe", file);
  int code = 0;
  try {
    const std::string batch = check();
    json.member("good", true).member("batch", batch);
  } catch (const Error& error) {
    code = exit_code(error.code());
    json.member("good", false).member("problem", std::string_view(error.what()));
  }
  std::printf("%s\n", json.end_object().take().c_str());
  return code;
}

int check_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  std::string note;
  const auto check = [&] {
    Opened opened = open_recipe(arguments, file);
    const Assembly assembly = assemble(opened);
    preflight(assembly, *opened.plugins);
    note = crowded_cores(assembly);
    return assembly.batch().text();
  };
  if (arguments.has("--json")) return check_for_programs(file, check);
  const std::string batch = check();
  if (arguments.has("--quiet")) return 0;
  std::printf("%s: good; %s\n", file.c_str(), batch.c_str());
  if (!note.empty()) std::printf("note: %s\n", note.c_str());
  return 0;
}

}  // namespace

std::vector<Command> check_verb() {
  return {{"check",
           "RECIPE",
           "say everything that is wrong with it, run nothing",
           {json_option, quiet_option},
           check_command}};
}

}  // namespace prun
