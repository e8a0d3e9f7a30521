// Implements prun report: it writes a run, several over each other, or a recipe as one HTML file.
#include <cstdio>

#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/costs_file.hpp"
#include "report/page.hpp"
#include "report/plan_page.hpp"
#include "report/run_page.hpp"
#include "runs/diff.hpp"
#include "search/laid_out.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

bool is_recipe(const std::string& word) {
  std::error_code ignored;
  const fs::path extension = fs::path(word).extension();
  return extension == ".toml" || (fs::is_regular_file(word, ignored) && extension != ".jsonl");
}

// Plans the recipe in the run's folder, whose keys may have old names. What `auto` left open is chosen again.
AddPlan plan_of_run(const Arguments& arguments, const fs::path& folder) {
  return [&arguments, folder](Html& page, const RunLog& log) {
    const Opened opened =
        open_recipe_text(arguments, recipe_text_of(folder), (folder / "recipe.toml").string());
    const Assembly assembly(*opened.recipe, *opened.plugins);
    add_plan(page, assembly, *opened.plugins, forecast(assembly, *opened.plugins, arguments.path("--costs")),
             &log);
  };
}

// Returns the search whose first layout is taken where the recipe leaves it open: it is the same each time.
std::optional<TuneResult> layouts_of(const Arguments& arguments, const std::string& file) {
  const Opened opened = open_unsettled(arguments, file);
  if (!leaves_layout_open(*opened.unsettled)) return {};
  TuneRequest request;
  request.scope.ranks = opened.unsettled->integer("run.ranks");
  request.shown = most_layouts;
  const KnownCosts costs = known_costs(arguments.path("--costs"));
  return tune(*opened.unsettled, *opened.plugins, costs.table, request);
}

std::string page_of_recipe(const Arguments& arguments, const std::string& file) {
  const std::optional<TuneResult> layouts = layouts_of(arguments, file);
  const Opened opened = open_recipe(arguments, file);
  const Assembly assembly(*opened.recipe, *opened.plugins);
  return recipe_page(assembly, *opened.plugins,
                     forecast(assembly, *opened.plugins, arguments.path("--costs")),
                     layouts ? &*layouts : nullptr);
}

fs::path place_of_page(const Arguments& arguments, const fs::path& what, bool recipe) {
  if (const auto out = arguments.path("--out")) return *out;
  if (recipe) return what.stem().string() + ".html";
  std::error_code ignored;
  return (fs::is_directory(what, ignored) ? what : what.parent_path()) / "report.html";
}

int report_command(const Arguments& arguments) {
  const std::string& first = arguments.words.front();
  const bool recipe = arguments.words.size() == 1 && is_recipe(first);
  const fs::path out = place_of_page(arguments, first, recipe);
  const OutputKind kind{"a page of prun report", page_mark};
  check_output(out, kind);
  const std::string page = recipe ? page_of_recipe(arguments, first)
                                  : run_page({arguments.words.begin(), arguments.words.end()},
                                             plan_of_run(arguments, log_of(first).parent_path()));
  write_cleanly(out, page, kind);
  std::printf("wrote %s (%s); open it in a browser\n", out.c_str(), size_text(page.size()).c_str());
  return 0;
}

}  // namespace

std::vector<Command> report_verb() {
  return {
      {"report",
       "RUN...",
       "a run as one HTML file for any browser: curves, time, memory, traffic, what happened; several runs "
       "over each other; "
       "or, of a RECIPE, what its plan says, and which layouts were looked at where it leaves its own open",
       {{"--out", "FILE", "the page"}, costs_option},
       report_command}};
}

}  // namespace prun
