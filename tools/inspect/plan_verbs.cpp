// Implements prun plan, prun check and prun verify.
#include <cstdio>
#include <functional>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "estimate/forecast.hpp"
#include "inspect/report.hpp"
#include "inspect/report_sections.hpp"
#include "inspect/verify.hpp"
#include "program/passes.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/checkpoint/run_folder.hpp"
#include "train/loop/run_report.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- plan verb
// Implements prun plan: it shows what a recipe needs before anything runs.

int plan_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const bool lowered = arguments.has("--lowered");
  if (lowered && !arguments.has("--program"))
    throw_error(ErrorCode::bad_input, "--lowered goes with prun plan RECIPE --program");
  Opened opened = open_recipe(arguments, file);
  const Assembly assembly = assemble(opened);
  if (arguments.has("--program"))
    std::fputs(to_text(lowered ? assembly.program() : assembly.unlowered()).c_str(), stdout);
  else if (arguments.has("--json"))
    std::printf("%s\n", plan_json(assembly, forecast(assembly, *opened.plugins, arguments.path("--costs")),
                                  opened.chosen)
                            .c_str());
  else {
    if (!opened.chosen.empty()) std::printf("auto        %s\n", opened.chosen.c_str());
    std::fputs(plan_text(assembly, forecast(assembly, *opened.plugins, arguments.path("--costs"))).c_str(),
               stdout);
  }
  return 0;
}

}  // namespace

std::vector<Command> plan_verb() {
  return {{"plan",
           "RECIPE",
           "batch, ranks, traffic, memory, FLOPs and predicted step time before anything runs",
           {json_option,
            costs_option,
            {"--program", "", "the program as strategies left it"},
            {"--lowered", "", "with --program: as the device runs it"}},
           plan_command}};
}

namespace {

// ------------------------------------------------------------------- check verb
// Implements prun check: it says everything that is wrong with a recipe, and runs nothing.

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

namespace {

// ------------------------------------------------------------------- verify verb
// Implements prun verify: it runs a recipe beside its one-rank equivalent.

Recipe in_fp64(Recipe recipe) {
  for (const char* key : {"precision.master", "precision.moments", "precision.gradient"})
    recipe = recipe.with(key, "state");
  if (precision_of(recipe).reduce_bits == 0) recipe = recipe.with("precision.reduce", "state");
  for (const char* key : {"precision.compute", "precision.state"}) recipe = recipe.with(key, "fp64");
  return recipe;
}

// Where fp64 is not supported, the recipe's own precision may be.
[[noreturn]] void refuse_fp64(const Error& error, const Opened& opened) {
  const Assembly as_it_is(*opened.recipe, *opened.plugins);
  throw_error(error.code(), error.what(), "; prun verify --as-is compares in the recipe's own precision");
}

// A checkpoint's bits are in the recipe's precision.
void check_can_resume(const Recipe& recipe) {
  const std::string& from = recipe.text("run.resume");
  if (!from.empty() && recipe.text("precision.state") != "fp64")
    throw_error(ErrorCode::bad_input, "verify computes in fp64, and run.resume = \"", from,
                "\" goes on from state in ", recipe.text("precision.state"),
                "; add --as-is, or leave run.resume out");
}

VerifyOptions options_of(const Arguments& arguments) {
  VerifyOptions options;
  options.steps = arguments.number("--steps", options.steps);
  if (arguments.values.count("--bound") != 0) options.bound = arguments.real("--bound", 0, 0, 1);
  if (const auto names = arguments.values.find("--exact"); names != arguments.values.end())
    for (const std::string_view name : split(names->second, ',')) options.exact.emplace_back(trim(name));
  return options;
}

int verify_command(const Arguments& arguments) {
  const std::string& file = arguments.words[0];
  const Opened opened = open_recipe(arguments, file, asked_rank());
  Recipe recipe = *opened.recipe;
  const bool as_is = arguments.has("--as-is");
  if (!as_is) check_can_resume(recipe);
  if (!as_is) recipe = in_fp64(recipe);
  recipe = with_thread_ranks(recipe);
  check_goes_on(recipe, *opened.plugins);
  const std::vector<SearchPlace>& places = opened.plugins->places();
  const VerifyOptions options = options_of(arguments);
  if (is_asked()) return answer(recipe, places, compare_with_one_rank(recipe, places, options));
  try {
    const LayoutVerdict verdict = verify_layout(recipe, places, options, arguments.all);
    std::fputs(to_text(verdict).c_str(), stdout);
    return verdict.equal() ? 0 : 1;
  } catch (const Error& error) {
    if (as_is || error.code() != ErrorCode::unsupported) throw;
    refuse_fp64(error, opened);
  }
}

}  // namespace

std::vector<Command> verify_verb() {
  return {{"verify",
           "RECIPE",
           "train it beside its one-rank equivalent and compare everything",
           {{"--steps", "N", "steps, 3"},
            {"--as-is", "", "in the recipe's precision, not in fp64"},
            {"--bound", "X", "the largest difference that counts as equal; else by the precision"},
            {"--exact", "NAMES", "values of whole numbers that must be equal: block.route.index,*.counts"}},
           verify_command}};
}

}  // namespace prun
