// Implements prun check: it says everything that is wrong with a recipe, and runs nothing.
#include <cstdio>
#include <functional>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "inspect/assumed.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/run_report.hpp"

namespace prun {
namespace {

struct Checked {
  std::string batch, saves;
};

// Says when a run saves itself, and what a checkpoint takes.
std::string saves_text(const Assembly& assembly) {
  const Recipe& recipe = assembly.recipe();
  if (!saves(recipe)) return "nothing (run.save_at_end = false)";
  std::vector<std::string> when;
  if (const std::int64_t every = recipe.integer("run.save_every"); every > 0)
    when.push_back(every == 1 ? "after each step" : detail::concat("every ", every, " steps"));
  if (const double minutes = recipe.number("run.save_minutes"); minutes > 0)
    when.push_back(format("every %g minutes", minutes));
  if (recipe.flag("eval.keep_best")) when.emplace_back("at the best evaluation");
  if (recipe.flag("run.save_at_end")) when.emplace_back("at the end");
  return join(when, ", ") + "; a checkpoint takes " + size_text(checkpoint_bytes(assembly)) + " in " +
         run_folder(recipe).string();
}

// Prints the result of checking, for programs: an Error is part of the answer.
int check_for_programs(const std::string& file, const std::function<Checked()>& check) {
  JsonWriter json;
  json.begin_object().member("recipe", file);
  int code = 0;
  try {
    const Checked checked = check();
    json.member("good", true).member("batch", checked.batch).member("saves", checked.saves);
  } catch (const Error& error) {
    code = exit_code(error.code());
    json.member("good", false).member("problem", std::string_view(error.what()));
  }
  std::printf("%s\n", json.end_object().take().c_str());
  return code;
}

int check_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  std::vector<std::string> notes;
  const auto check = [&] {
    Opened opened = open_recipe(arguments, file);
    const Assembly assembly = assemble(opened);
    preflight(assembly, *opened.plugins);
    notes = {crowded_host_note(assembly), crowded_cores(assembly), long_warmup_text(assembly.recipe()),
             no_room_for_save(assembly)};
    return Checked{assembly.batch().text(), saves_text(assembly)};
  };
  if (arguments.has("--json")) return check_for_programs(file, check);
  const Checked checked = check();
  if (arguments.has("--quiet")) return 0;
  std::printf("%s: good; %s\n", file.c_str(), checked.batch.c_str());
  std::printf("saves %s\n", checked.saves.c_str());
  for (const std::string& note : notes)
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
