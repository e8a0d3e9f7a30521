#include "search/what_fits.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.hpp"
#include "estimate/forecast.hpp"
#include "estimate/number_text.hpp"
#include "plan/launch_limit.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/plan_maker.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_shown = 3;
// Changes that there was no time for get this time: they are tried one by one, the strongest first.
constexpr std::chrono::seconds for_the_strongest{3};
// One plan of a longer step takes all the time there is.
constexpr std::int64_t most_launches_to_change = 1'000'000;

// Lists what the core itself can do without, the least missed first. Numbers are rounded otherwise than they
// were.
struct Narrower {
  const char* key;
  const char* value;
};
constexpr std::array narrower = {Narrower{"precision.master", "split"}, Narrower{"precision.moments", "bf16"},
                                 Narrower{"precision.gradient", "bf16"}};
// A strategy gets so many ranks along its axis, out of those that have the batch.
constexpr std::array<std::int64_t, 3> splits = {2, 4, 8};

struct FitCandidate {
  RecipeChange change;
  bool exact = true;
  std::set<std::size_t> groups = {};  // groups that it belongs to
};

// Collects candidates of a recipe in groups: each group has the steps of one thing, its weakest step first.
class Candidates {
 public:
  Candidates(const Recipe& recipe, PluginHost& plugins)
      : recipe_(recipe), plugins_(plugins), mesh_(mesh_of(recipe)) {
    micro();
    for (const std::string& name : plugins.catalog().names("strategy")) strategy(name);
    for (const Narrower& each : narrower)
      if (recipe.text(each.key) != each.value) groups_.push_back({{{{each.key, each.value}}, false}});
  }

  // Returns single steps, then two groups' strongest together, then two groups' other steps, since the
  // strongest of one may not go with another, then the strongest of more and more groups.
  std::vector<FitCandidate> all() const {
    std::vector<FitCandidate> all;
    for (std::size_t group = 0; group < groups_.size(); ++group)
      for (FitCandidate step : groups_[group]) {
        step.groups = {group};
        all.push_back(std::move(step));
      }
    for (std::size_t a = 0; a < groups_.size(); ++a)
      for (std::size_t b = a + 1; b < groups_.size(); ++b) add_union(all, {{a, last(a)}, {b, last(b)}});
    for (std::size_t a = 0; a < groups_.size(); ++a)
      for (std::size_t b = a + 1; b < groups_.size(); ++b) add_other_pairs(all, a, b);
    std::vector<Step> several;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      several.push_back({group, last(group)});
      if (several.size() > 2) add_union(all, several);
    }
    return all;
  }

 private:
  struct Step {
    std::size_t group, number;
  };

  std::size_t last(std::size_t group) const { return groups_[group].size() - 1; }

  // Adds all pairs of steps of two groups but the pair of the strongest, the weakest first.
  void add_other_pairs(std::vector<FitCandidate>& all, std::size_t a, std::size_t b) const {
    for (std::size_t of_a = 0; of_a <= last(a); ++of_a)
      for (std::size_t of_b = 0; of_b <= last(b); ++of_b)
        if (of_a != last(a) || of_b != last(b)) add_union(all, {{a, of_a}, {b, of_b}});
  }

  // Adds the union of steps; a step whose keys another has set already is left out.
  void add_union(std::vector<FitCandidate>& all, const std::vector<Step>& steps) const {
    FitCandidate together;
    std::set<std::string> keys;
    std::size_t appended = recipe_.strategies().size();
    for (const auto& [group, number] : steps) {
      const FitCandidate& step = groups_[group][number];
      if (std::any_of(step.change.begin(), step.change.end(), [&](const auto& set) {
            return !set.first.starts_with("strategy.") && keys.count(set.first) != 0;
          }))
        continue;
      append(together.change, step.change, appended, keys);
      together.exact &= step.exact;
      together.groups.insert(group);
    }
    all.push_back(std::move(together));
  }

  // Appends a change; strategies that are new to the recipe get the next numbers.
  void append(RecipeChange& to, const RecipeChange& from, std::size_t& appended,
              std::set<std::string>& keys) const {
    const std::string fresh = detail::concat("strategy.", recipe_.strategies().size(), ".");
    bool any = false;
    for (const auto& [key, value] : from) {
      const bool renumbered = key.starts_with(fresh);
      any |= renumbered;
      to.emplace_back(renumbered ? detail::concat("strategy.", appended, ".", key.substr(fresh.size())) : key,
                      value);
      keys.insert(to.back().first);
    }
    appended += any;
  }

  void micro() {
    std::vector<FitCandidate> group;
    const std::int64_t now = recipe_.integer("batch.micro");
    for (std::int64_t micro = now / 2; micro >= 1; micro /= 2)
      if (now % micro == 0) group.push_back({{{"batch.micro", std::to_string(micro)}}});
    if (!group.empty()) groups_.push_back(std::move(group));
  }

  // Returns the strategy's place in the recipe, or the next one.
  std::string place_of(const std::string& name, bool& there) const {
    const auto strategies = recipe_.strategies();
    const auto found = std::find_if(strategies.begin(), strategies.end(),
                                    [&](const auto& each) { return each.plugin() == name; });
    there = found != strategies.end();
    return detail::concat("strategy.", found - strategies.begin(), ".");
  }

  void strategy(const std::string& name) {
    try {
      const PluginNote& note = plugins_.note("strategy", name);
      if (trait_lists(note, "splits", "model")) split_model(note);
      if (!trait_of(note, "frees").empty()) free(note);
    } catch (const Error&) {
      return;  // a plugin that cannot be used is no help
    }
  }

  // Returns the axes that the batch is split over.
  std::vector<std::string> batch_axes() const {
    std::vector<std::string> axes;
    for (const auto& each : recipe_.strategies())
      if (each.find("axis") && trait_lists(plugins_.note("strategy", each.plugin()), "splits", "batch"))
        axes.push_back(each.text("axis"));
    return axes;
  }

  void free(const PluginNote& note) {
    bool there = false;
    const std::string at = place_of(note.name, there);
    if (!there && trait_of(note, "tune") == "changes") return;  // it would train something else
    RecipeChange start;
    if (!there) {
      start.emplace_back(at + "plugin", note.name);
      if (parse_schema(note.options, note.name).find("axis")) {
        const std::vector<std::string> axes = batch_axes();
        if (axes.empty()) return;  // no other ranks to share with
        start.emplace_back(at + "axis", axes.front());
      }
    }
    std::vector<FitCandidate> group;
    RecipeChange so_far = start;
    for (const auto& [key, value] : settings_in(trait_of(note, "frees"))) {
      std::erase_if(so_far, [&, full = at + key](const auto& set) { return set.first == full; });
      so_far.emplace_back(at + key, value);
      group.push_back({so_far});
    }
    groups_.push_back(std::move(group));
  }

  void split_model(const PluginNote& note) {
    bool there = false;
    const std::string at = place_of(note.name, there);
    const Schema options = parse_schema(note.options, note.name);
    const auto* const axis_option = options.find("axis");
    if (!axis_option) return;
    const std::string axis =
        there ? recipe_.text(at + "axis") : std::get<std::string>(axis_option->default_value);
    const AxisId own = mesh_.find(axis);
    const std::int64_t has = own == no_axis ? 1 : mesh_.extent(own);
    std::vector<FitCandidate> group;
    for (const std::string& from : batch_axes())
      for (const std::int64_t ranks : splits) {
        const AxisId shared = mesh_.find(from);
        if (shared == no_axis || mesh_.extent(shared) % ranks != 0) continue;
        const std::int64_t extent = mesh_.extent(shared);
        RecipeChange change = {{"mesh." + from, std::to_string(extent / ranks)},
                               {"mesh." + axis, std::to_string(has * ranks)}};
        if (!there) change.emplace_back(at + "plugin", note.name);
        group.push_back({std::move(change)});
      }
    if (!group.empty()) groups_.push_back(std::move(group));
  }

  const Recipe& recipe_;
  PluginHost& plugins_;
  const Mesh mesh_;
  std::vector<std::vector<FitCandidate>> groups_;
};

// Returns the recipe's plan with a change, if it fits.
std::optional<FittingChange> planned(const Recipe& recipe, PluginHost& plugins, const FitCandidate& candidate,
                                     const std::function<void(const Assembly&)>& fits) {
  try {
    Recipe changed = recipe;
    for (const auto& [key, value] : candidate.change) changed = changed.with(key, value);
    const Assembly assembly = assemble_unproven(std::move(changed), plugins);
    fits(assembly);
    FittingChange found{candidate.change, assembly.plan().layout.memory.total(), {}, candidate.exact};
    const Forecast forecast = prun::forecast(assembly, plugins, {});
    if (forecast.prediction) found.step_seconds = forecast.prediction->simulation.step_seconds;
    return found;
  } catch (const Error&) {
    return {};  // it does not fit either, or cannot be combined with the recipe
  }
}

// Orders changes: those that keep the numbers come first, and of them the fastest.
bool cheaper(const FittingChange& a, const FittingChange& b) {
  if (a.exact != b.exact) return a.exact;
  if (a.step_seconds && b.step_seconds) return *a.step_seconds < *b.step_seconds;
  return false;
}

// Tries changes that there was no time for, which free more and more, up to the last that fits. Most of those
// that do not go with the recipe are refused before they are planned, and cost little.
void try_strongest(const std::vector<const FitCandidate*>& left, Clock::time_point deadline, WhatFits& found,
                   const Recipe& recipe, PluginHost& plugins,
                   const std::function<void(const Assembly&)>& fits) {
  for (std::size_t i = left.size(); i-- > 0 && Clock::now() < deadline;) {
    ++found.planned;
    --found.left;
    auto fitting = planned(recipe, plugins, *left[i], fits);
    if (!fitting) continue;
    found.changes.push_back(std::move(*fitting));
    return;
  }
}

bool takes_long(const Recipe& recipe, PluginHost& plugins) {
  const PlanMaker maker(std::make_shared<PlannedRecipe>(recipe, plugins, 0, Purpose::training));
  const Assembly written = maker.write({});
  return launches_of(written.program(), written.batch().accumulate) > most_launches_to_change;
}

}  // namespace

WhatFits what_fits(const Recipe& recipe, PluginHost& plugins,
                   const std::function<void(const Assembly&)>& fits, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const std::vector<FitCandidate> candidates = Candidates(recipe, plugins).all();
  WhatFits found;
  if (takes_long(recipe, plugins)) {
    found.left = static_cast<int>(candidates.size());
    return found;
  }
  std::vector<const FitCandidate*> left;
  std::set<std::size_t>
      enough;  // groups of which a step is enough: more of it, or more beside it, is not needed
  for (const FitCandidate& candidate : candidates) {
    if (std::any_of(candidate.groups.begin(), candidate.groups.end(),
                    [&](std::size_t group) { return enough.count(group) != 0; }))
      continue;
    if (found.changes.size() >= most_shown && candidate.groups.size() > 1) break;
    if (Clock::now() > deadline) {
      left.push_back(&candidate);
      continue;
    }
    ++found.planned;
    auto fitting = planned(recipe, plugins, candidate, fits);
    if (!fitting) continue;
    found.changes.push_back(std::move(*fitting));
    if (candidate.groups.size() == 1) enough.insert(candidate.groups.begin(), candidate.groups.end());
  }
  found.left = static_cast<int>(left.size());
  if (found.changes.empty())
    try_strongest(left, Clock::now() + for_the_strongest, found, recipe, plugins, fits);
  std::stable_sort(found.changes.begin(), found.changes.end(), cheaper);
  if (found.changes.size() > most_shown) found.changes.resize(most_shown);
  return found;
}

namespace {

std::string to_text(const RecipeChange& change) {
  std::string text;
  for (const auto& [key, value] : change) text += detail::concat(" --set ", key, "=", value);
  return text;
}

// Says what the reader can try, if there was no time to.
std::string nothing_fits(const WhatFits& found) {
  if (found.planned == 0)
    return detail::concat("Plans of this size take long, so none of ", found.left,
                          " changes was tried; prun tune RECIPE estimates many, and more ranks, a smaller "
                          "model or a shorter model.seq need less.");
  std::string text = detail::concat("None of ", found.planned, " changes that were planned makes it fit");
  if (found.left > 0)
    text += detail::concat(", those that save most among them; plans of this size take long, so ", found.left,
                           " were left out");
  return text +
         "; prun tune RECIPE tries more of them together, and more ranks, a smaller model or a shorter "
         "model.seq need less.";
}

}  // namespace

std::string to_text(const WhatFits& found) {
  if (found.changes.empty()) return nothing_fits(found);
  std::string text = "What would fit:";
  for (const FittingChange& each : found.changes) {
    text += detail::concat("\n ", to_text(each.change), "   (", size_text(each.bytes), " of memory");
    if (each.step_seconds) text += ", " + time_text(*each.step_seconds) + " a step predicted";
    text += each.exact ? ")" : ", other rounding)";
  }
  return text;
}

}  // namespace prun
