#include "conform/strategy_check.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli/open_recipe.hpp"
#include "conform/isolated.hpp"
#include "conform/ops_beside.hpp"
#include "conform/tiny_recipe.hpp"
#include "conform/trial_options.hpp"
#include "inspect/verify.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

constexpr std::int64_t steps = 2;

// Returns the axis that it works on; empty means none.
std::string axis_of(const PluginNote& note, const std::string& given) {
  const Schema schema = trial_schema(note, given);
  const recipe::Option* const axis = schema.find("axis");
  if (!axis || axis->presence != recipe::Presence::has_default) return "";
  const auto* const one = std::get_if<std::string>(&axis->default_value);
  return one ? *one : std::get<std::vector<std::string>>(axis->default_value).front();
}

std::string strategy_text(const std::string& name, const std::string& axis) {
  return "[[strategy]]\nplugin = \"" + name + "\"\n" + (axis.empty() ? "" : "axis = \"" + axis + "\"\n");
}

// Returns the text by which a strategy finds the ops that it brings.
std::string ops_table(const OpsBeside& ops) {
  return ops.names().empty() ? "" : "[plugins]\nops = " + recipe::to_toml(recipe::Value(ops.names())) + "\n";
}

// Lays out two ranks on its axis, or on that of `data` where it has none; with ZeRO, where it is no part of
// that itself, over two ranks more.
std::string layout_of(const PluginNote& note, const std::string& given, bool with_zero) {
  const std::string axis = axis_of(note, given);
  const bool splits_batch = trait_lists(note, "splits", "batch");
  const bool own_axis = !axis.empty() && axis != "dp";
  std::string text =
      "[mesh]\n" + (own_axis ? axis + " = 2\n" : std::string()) + (!own_axis || with_zero ? "dp = 2\n" : "");
  if (note.name != "data" && !splits_batch && (!own_axis || with_zero)) text += strategy_text("data", "dp");
  if (own_axis && splits_batch && with_zero) text += strategy_text("data", "dp");
  text += strategy_text(note.name, "") + given + "\n";
  if (with_zero) text += strategy_text("zero", "dp");
  return text;
}

// Says whether the plugin itself, or its traits, refuse a layout; with any other error the plugin is wrong.
bool is_refusal(const Error& error, const PluginNote& note) {
  const std::string_view said = error.what();
  return said.find(describe(note) + ": ") != said.npos || said.find("cannot combine strategy '") != said.npos;
}

void check_equal(const LayoutVerdict& verdict, const std::string& what) {
  if (!verdict.equal())
    throw_error(ErrorCode::bad_input, what, ": ", verdict.ranks, " ranks do not compute what one does; ",
                to_text(verdict));
}

CheckFinding check_in_recipe(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                             const std::string& file) {
  plugin.doing(file);
  Arguments arguments;
  for (const SearchPlace& place : places) arguments.plugin_paths.push_back(place.folder);
  const Opened opened = open_recipe(arguments, file);
  const std::vector<RecipeSection> used = opened.recipe->strategies();
  if (std::none_of(used.begin(), used.end(),
                   [&](const RecipeSection& one) { return one.plugin() == plugin.note.name; }))
    throw_error(ErrorCode::bad_input, file, " does not name the strategy '", plugin.note.name, "'; add it");
  const LayoutVerdict verdict =
      verify_layout(with_thread_ranks(*opened.recipe), opened.plugins->places(), steps);
  check_equal(verdict, file);
  return {detail::concat(file, " on ", verdict.ranks, " ranks")};
}

}  // namespace

CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& others,
                            const std::string& given, const std::optional<std::filesystem::path>& in_recipe) {
  std::vector<SearchPlace> places = {{plugin.path.parent_path(), "the plugin's folder"}};
  places.insert(places.end(), others.begin(), others.end());
  if (in_recipe) return check_in_recipe(plugin, places, in_recipe->string());
  const TrialFolder folder;
  const std::string known_ops = ops_table(OpsBeside(plugin.path.parent_path(), others));
  std::vector<std::string> tried, left;
  for (const BaseModel& model : trial_models)
    for (const bool with_zero : {false, true}) {
      if (with_zero && plugin.note.name == "zero") continue;
      const std::string what = detail::concat(model.plugin, with_zero ? " with ZeRO" : "");
      plugin.doing(what);
      try {
        PluginHost plugins(places);
        const Recipe recipe =
            tiny_recipe(model, known_ops + layout_of(plugin.note, given, with_zero), folder.path(), plugins);
        check_alike_elsewhere("apply()", [&] { return to_text(Assembly(recipe, plugins).program()); });
        const LayoutVerdict verdict = verify_layout(recipe, places, steps);
        check_equal(verdict, what);
        tried.push_back(detail::concat(what, " on ", verdict.ranks, " ranks"));
      } catch (const Error& error) {
        if (!is_refusal(error, plugin.note)) throw_error(error.code(), what, ": ", error.what());
        left.push_back(detail::concat(what, " (", error.what(), ")"));
      }
    }
  std::string detail = join(tried, ", ");
  if (!left.empty()) detail += (tried.empty() ? "" : "; ") + ("not checked: " + join(left, ", "));
  if (tried.empty()) detail += "; give a recipe that it fits by --recipe";
  return {detail, !tried.empty()};
}

}  // namespace prun
