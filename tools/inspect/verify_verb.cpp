// Implements prun verify: it runs a recipe beside its one-rank equivalent.
#include <cstdio>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "cli/preflight.hpp"
#include "inspect/verify.hpp"

namespace prun {
namespace {

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
