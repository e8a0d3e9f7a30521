#include "train/assemble/recipe_checks.hpp"

#include <algorithm>
#include <functional>
#include <span>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "prun/strategy.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun {
namespace {

// Says whether any pattern in "tensor,zb-*" matches.
bool any_matches(std::string_view patterns, std::string_view text) {
  for (const std::string_view pattern : split(patterns, ','))
    if (glob_match(trim(pattern), text)) return true;
  return false;
}

void check_batch(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  if (recipe.integer("batch.micro") == 0) {
    problems.add(recipe.problem("batch.micro",
                                "batch.micro is missing, which says how many sequences a rank takes at once; "
                                "give it, or let prun tune choose it"));
    return;
  }
  const BatchArithmetic batch = BatchArithmetic::of(recipe, plugins);
  const std::int64_t global = batch.global, ranks = batch.ranks, at_once = batch.micro * ranks;
  if (global % at_once == 0 || recipe.flag("batch.pad")) {
    check_ramp(recipe, batch, problems);
    return;
  }
  const std::int64_t below = global / at_once * at_once, above = below + at_once;
  const std::string times = ranks > 1 ? detail::concat(" x ", ranks, " data-parallel ranks = ", at_once) : "";
  problems.add(recipe.problem(
      "batch.global",
      detail::concat("batch.global = ", global,
                     " is not a multiple of batch.micro = ", recipe.integer("batch.micro"), times,
                     "; the nearest that are: ", below > 0 ? detail::concat(below, " and ") : "", above,
                     "; or set batch.pad = true")));
}

// Checks the name: if run.out is not given, runs/NAME is the run's folder.
void check_name(const Recipe& recipe, Diagnostics& problems) {
  constexpr std::size_t longest = 200;  // what stands beside the folder for a time has a longer name
  const std::string& name = recipe.text("run.name");
  if (!recipe.text("run.out").empty()) return;
  if (name.empty() || name == "." || name == ".." || name.size() > longest ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    problems.add(recipe.problem(
        "run.name", detail::concat("the run's folder is runs/NAME, so a name has one to ", longest,
                                   " bytes, no / and is not . or ..; run.out names a folder elsewhere")));
}

// Returns the strategy whose own axis has that name, unless it is set otherwise; else one that splits the
// batch.
std::string strategy_for(PluginHost& plugins, const std::string& axis) {
  std::string of_batch;
  for (const PluginNote& note : usable_notes(plugins.places(), "strategy")) {
    const Schema options = parse_schema(note.options, note.name);
    const recipe::Option* const own = options.find("axis");
    const auto* const name = own ? std::get_if<std::string>(&own->default_value) : nullptr;
    if (trait_of(note, "splits").empty() || !name) continue;
    if (*name == axis) return note.name;
    if (of_batch.empty() && trait_lists(note, "splits", "batch")) of_batch = note.name;
  }
  return of_batch;
}

// Refuses an axis that no strategy uses: it would only do the same work several times.
void check_mesh(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  const Mesh mesh = mesh_of(recipe);
  const std::vector<RecipeSection> strategies = recipe.strategies();
  std::vector<std::string> known;
  for (const Axis& axis : mesh.axes()) {
    known.push_back(axis.name);
    const bool used = std::any_of(strategies.begin(), strategies.end(), [&](const RecipeSection& section) {
      const std::vector<std::string> axes = axes_named(section);
      return std::find(axes.begin(), axes.end(), axis.name) != axes.end();
    });
    if (!used && axis.extent > 1)
      problems.add(
          recipe.problem("mesh." + axis.name,
                         detail::concat("no strategy uses the axis '", axis.name,
                                        "'; add one, such as [[strategy]] plugin = \"",
                                        strategy_for(plugins, axis.name), "\", axis = \"", axis.name, "\"")));
  }
  for (const RecipeSection& section : strategies)
    for (const std::string& axis : axes_named(section))
      if (mesh.find(axis) == no_axis)
        problems.add(recipe.problem(section.path() + ".axis",
                                    detail::concat("the mesh has no axis '", axis, "'",
                                                   did_you_mean(axis, known), "; add it to [mesh]")));
}

void check_strategies(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  for (const RecipeSection& section : recipe.strategies()) {
    const recipe::Entry* const axis = section.find("axis");
    const bool names = axis && (axis->option.type == recipe::OptionType::string ||
                                axis->option.type == recipe::OptionType::names);
    if (axis && axis->value && !names)
      problems.add(recipe.problem(
          section.path() + ".plugin",
          detail::concat("strategy plugin '", section.plugin(), "' declares its option 'axis' as ",
                         recipe::name_of(axis->option.type),
                         "; a mesh axis is named by a string, several by names")));
    const std::string_view conflicts = trait_of(plugins.note("strategy", section.plugin()), "conflicts");
    for (const RecipeSection& other : recipe.strategies())
      if (any_matches(conflicts, other.plugin()))
        problems.add(recipe.problem(section.path() + ".plugin",
                                    detail::concat("cannot combine strategy '", section.plugin(), "' with '",
                                                   other.plugin(), "'; leave one of them out")));
    check_over_batch(recipe, plugins, section, problems);
  }
}

// Returns the key to blame: a key that leaves it to precision.state passes the blame on.
std::string blamed(const Recipe& recipe, const std::string& key) {
  return recipe.text("precision." + key) == "state" ? "state" : key;
}

// Requires wider types for what is kept beside parameters in fp16: nothing of bf16's range fits into them,
// nor is anything in them rounded stochastically.
bool keeps_wide_beside_fp16(const Recipe& recipe, const Precision& precision, Diagnostics& problems) {
  if (precision.compute != DType::f16) return true;
  const auto refuse = [&](const char* key, DType type) {
    if (type == DType::f32 || type == DType::f64) return true;
    problems.add(recipe.problem(
        "precision." + blamed(recipe, key),
        detail::concat("cannot use precision.", key, " = \"", name_of(type),
                       "\" with precision.compute = \"fp16\"; set it to \"fp32\" or \"fp64\"")));
    return false;
  };
  return refuse("master", precision.master) && refuse("gradient", precision.gradient);
}

void check_precision(const Recipe& recipe, Diagnostics& problems) {
  const Precision precision = precision_of(recipe);
  const std::string compute = name_of(precision.compute);
  if (precision.split && precision.compute != DType::bf16) {
    problems.add(recipe.problem(
        "precision.master", "cannot use precision.master = \"split\" with precision.compute = \"" + compute +
                                "\": it stores the low halves of weights whose parameters are bf16; set "
                                "compute = \"bf16\", or master = \"fp32\""));
    return;
  }
  if (!keeps_wide_beside_fp16(recipe, precision, problems)) return;
  const std::pair<const char*, DType> kept[] = {
      {"master", precision.master}, {"gradient", precision.gradient}, {"moments", precision.moments}};
  std::string narrow;
  for (const auto& [key, type] : std::span(kept).first(2))
    if (const std::string name = blamed(recipe, key);
        size_of(type) < size_of(precision.compute) && name != narrow) {
      narrow = name;
      problems.add(recipe.problem(
          "precision." + name, detail::concat("precision.", name, " is narrower than precision.compute; set ",
                                              name, " = \"", compute, "\"")));
    }
  const auto wide = [](const auto& entry) { return entry.second == DType::f64; };
  const auto count = std::count_if(std::begin(kept), std::end(kept), wide);
  if (!narrow.empty() || count == 0 || count == std::ssize(kept)) return;
  const auto* const other = std::find_if_not(std::begin(kept), std::end(kept), wide);
  problems.add(recipe.problem(
      "precision." + blamed(recipe, other->first),
      detail::concat(
          "cannot mix precision.", blamed(recipe, other->first), " = \"", name_of(other->second),
          "\" with fp64 in others of master, moments and gradient; set all of them to fp64, or none")));
}

// Checks the token between documents: some data have one of their own.
void check_document_end(const Recipe& recipe, const RecipeSection& section, PluginHost& plugins,
                        Diagnostics& problems) {
  const std::string key(trait_of(plugins.note("data", section.plugin()), "document_end"));
  if (key.empty()) return;
  const std::int64_t between = section.integer(key);
  if (!recipe.flag("data.mask_documents"))
    problems.add(recipe.problem(
        section.path() + "." + key,
        detail::concat("these data have several documents in a sample, with the token ", between,
                       " between them; set data.mask_documents = true and data.end_of_text = ", between)));
  else if (recipe.has("data.end_of_text") && recipe.integer("data.end_of_text") != between)
    problems.add(recipe.problem(
        section.path() + "." + key,
        detail::concat("documents of these data end with the token ", between, ", and data.end_of_text = ",
                       recipe.integer("data.end_of_text"), "; give both the same number")));
}

void check_documents(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  check_document_end(recipe, recipe.section("data"), plugins, problems);
  for (const char* more : {"data.blend", "validation"})
    for (const RecipeSection& section : recipe.sections(more))
      check_document_end(recipe, section, plugins, problems);
  if (recipe.flag("data.mask_documents") && !recipe.has("data.end_of_text"))
    problems.add(
        recipe.problem("data.mask_documents",
                       "documents are told apart by the token that ends them; set data.end_of_text to its "
                       "number, such as 50256 for GPT-2's <|endoftext|>"));
}

void check_save_memory(const Recipe& recipe, Diagnostics& problems) {
  const SaveMemory said = save_memory(recipe);
  const std::string& text = recipe.text("run.save_memory");
  if (text.empty() || said.all || said.bytes.value_or(0) >= least_save_bytes) return;
  problems.add(recipe.problem(
      "run.save_memory",
      detail::concat(in_quotes(text),
                     said.bytes ? " is less than what has to be on its way at least" : " is no size",
                     "; give 16MiB or more, \"all\", or leave the key out")));
}

}  // namespace

// Each value is in its range by now; these checks are about what several of them mean together.
namespace {

// Says what is wrong with the points that the learning rate is given by.
std::string wrong_points(const std::string& kind, const std::vector<std::int64_t>& at,
                         const std::vector<double>& factors) {
  if (at.empty())
    return "schedule.kind = \"" + kind +
           "\" takes its steps from schedule.at and what lr is multiplied by from schedule.factors";
  if (at.size() != factors.size())
    return detail::concat("schedule.at has ", at.size(), " steps and schedule.factors ", factors.size(),
                          " numbers; each step has one");
  if (std::adjacent_find(at.begin(), at.end(), std::greater_equal<>()) != at.end())
    return "the steps of schedule.at go up";
  return "";
}

void check_rate(const Recipe& recipe, Diagnostics& problems) {
  const RecipeSection optimizer = recipe.section("optimizer");
  const std::string& kind = recipe.text("optimizer.schedule.kind");
  const auto wrong = [&](const char* key, std::string text) {
    problems.add(recipe.problem(std::string("optimizer.schedule.") + key, std::move(text)));
  };
  const bool listed = kind == "steps" || kind == "points";
  const std::vector<std::int64_t>& at = optimizer.integers("schedule.at");
  const std::vector<double>& factors = optimizer.numbers("schedule.factors");
  if (listed) {
    if (std::string text = wrong_points(kind, at, factors); !text.empty()) wrong("kind", std::move(text));
  } else if (!at.empty() || !factors.empty()) {
    wrong(at.empty() ? "factors" : "at",
          "schedule.at and schedule.factors are for schedule.kind = \"steps\" and \"points\"");
  }
  const bool falls = optimizer.has("schedule.decay");
  if (kind == "wsd" && !falls)
    wrong("kind", "schedule.kind = \"wsd\" needs schedule.decay, the steps over which it falls at the end");
  if (kind != "wsd" && falls) wrong("decay", "schedule.decay is for schedule.kind = \"wsd\"");
  if (kind != "wsd" || !falls) return;
  const std::int64_t given = recipe.integer("optimizer.schedule.steps"),
                     end = given > 0 ? given : recipe.integer("run.steps"),
                     decay = optimizer.integer("schedule.decay"),
                     warmup = recipe.integer("optimizer.schedule.warmup");
  if (warmup + decay > end)
    wrong("decay", detail::concat("schedule.warmup = ", warmup, " and schedule.decay = ", decay,
                                  " are more steps than the ", end, " until the end"));
}

// Checks that a recipe whose keys depend on evaluations has some.
void check_evaluations(const Recipe& recipe, Diagnostics& problems) {
  if (recipe.integer("eval.every") > 0) return;
  const auto wrong = [&](const char* key) {
    problems.add(
        recipe.problem(key, std::string(key) + " goes by evaluations, and there is none; set eval.every"));
  };
  for (const char* key : {"eval.by_set", "eval.keep_best"})
    if (recipe.flag(key)) wrong(key);
  if (recipe.integer("eval.patience") > 0) wrong("eval.patience");
}

// Has each strategy say what it finds wrong. Options that its constructor refuses are a problem of its
// section.
void ask_strategies(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  for (const RecipeSection& section : recipe.strategies()) {
    auto add = [&](std::string_view key, std::string_view message) {
      const bool own = section.find(key) != nullptr;
      problems.add(recipe.problem(own ? section.path() + "." + std::string(key) : std::string(key),
                                  detail::concat("strategy plugin '", section.plugin(), "': ", message)));
    };
    const ProblemsApi api{
        sizeof(ProblemsApi), &add, [](void* to, Text key, Text message) {
          return guard([&] { (*static_cast<decltype(add)*>(to))(key.view(), message.view()); });
        }};
    const auto strategy = plugins.create<StrategyInterface>("strategy", section);
    const OptionsApi whole = options_of(recipe);
    raise(strategy->check(&whole, &api));
  }
}

}  // namespace

void check_combinations(const Recipe& recipe, PluginHost& plugins, Purpose purpose) {
  Diagnostics problems;
  check_rate(recipe, problems);
  check_evaluations(recipe, problems);
  check_name(recipe, problems);
  check_precision(recipe, problems);
  check_loss_scale(recipe, problems);
  check_strategies(recipe, plugins, problems);
  check_mesh(recipe, plugins, problems);
  check_batch(recipe, plugins, problems);
  check_documents(recipe, plugins, problems);
  if (!makes_text(purpose)) {
    check_masks(recipe, plugins, problems);
    check_spans(recipe, plugins, problems);
  }
  check_save_memory(recipe, problems);
  problems.throw_if_any();
  ask_strategies(recipe, plugins, problems);
  problems.throw_if_any();
}

void check_parts_axes(const Recipe& recipe, const RecipeSection& keeper) {
  Diagnostics problems;
  const std::vector<RecipeSection> all = recipe.strategies();
  for (const std::string& axis : axes_named(keeper)) {
    const auto lies_over_it = [&](const RecipeSection& other) {
      return other.path() != keeper.path() && axis_of(other) == axis;
    };
    if (std::any_of(all.begin(), all.end(), lies_over_it)) continue;
    problems.add(recipe.problem(
        keeper.path() + ".axis",
        detail::concat(
            "strategy '", keeper.plugin(), "' shares state out over the axis '", axis,
            "', over which nothing is split, so each rank would do the same work; add [[strategy]] "
            "plugin = \"data\", axis = \"",
            axis, "\", which splits the batch over it")));
  }
  problems.throw_if_any();
}

bool saves_between_steps(const Recipe& recipe) {
  return recipe.integer("run.save_every") > 0 || recipe.number("run.save_minutes") > 0 ||
         recipe.flag("eval.keep_best");
}

bool saves(const Recipe& recipe) { return recipe.flag("run.save_at_end") || saves_between_steps(recipe); }

}  // namespace prun
