#include "train/tune/tune.hpp"

#include <algorithm>
#include <set>

#include "simulate/machine.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/known_costs.hpp"
#include "train/assemble/one_host.hpp"
#include "train/tune/recipe_text.hpp"
#include "train/tune/space_search.hpp"
#include "train/tune/why.hpp"

namespace prun {
namespace {

std::int64_t ranks_of_a_host(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish,
                             std::int64_t ranks) {
  if (wish.hosts > 0) {
    if (ranks % wish.hosts != 0)
      throw_error(ErrorCode::bad_input, ranks, " ranks cannot be shared out over ", wish.hosts,
                  " hosts, as many on each; change one of the two");
    return ranks / wish.hosts;
  }
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  return ranks_of_host(info, recipe, plugins, ranks);
}

[[noreturn]] void refuse(const TuneResult& result) {
  const bool all_priced = result.unpriced.count == 0;
  throw_error(ErrorCode::bad_input, "none of ", result.looked_at, " ways to lay the step out over ",
              result.ranks, result.ranks == 1 ? " rank" : " ranks", " can be taken: ", result.lacked_memory,
              " need more memory than there is, ", result.refused,
              " cannot be combined with what the recipe says",
              all_priced ? "" : ", " + to_text(result.unpriced),
              result.refusal.empty()
                  ? ""
                  : (all_priced ? "; most often: " : "; of the others most often: ") + result.refusal +
                        "; more ranks (--ranks), a smaller model or model.seq, or saying "
                        "less in the recipe may help");
}

}  // namespace

std::string to_text(const UnpricedWays& unpriced) {
  std::string text =
      detail::concat("for ", unpriced.count, " a figure is missing: ", unpriced.why, ". One of these ways:");
  for (const std::string& set : unpriced.sets)
    text += detail::concat(" --set ", set.find(' ') == std::string::npos ? set : "'" + set + "'");
  return text;
}

std::string_view name_of(TuneGoal goal) {
  constexpr std::string_view names[] = {"time", "memory", "tokens"};
  return names[static_cast<std::size_t>(goal)];
}

std::size_t threads_of(const TuneRequest& request) {
  return request.threads > 0 ? request.threads : static_cast<std::size_t>(this_machine().cores);
}

std::int64_t ranks_to_tune(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish) {
  if (wish.ranks > 0) return wish.ranks;
  if (const std::int64_t said = mesh_of(recipe).world(); said > 1) return said;
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  return std::max<std::int64_t>(1, info.absent ? 1 : info.units);
}

namespace {

CostTable costs_of(const Recipe& recipe, PluginHost& plugins, const CostTable& costs) {
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  return costs_for(costs, info, recipe, plugins);
}

TrialBase base_of(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                  const TuneResult& result) {
  return {toml_without(recipe, "mesh", [](const recipe::Entry&) { return std::string(); }), plugins.places(),
          &costs, result.ranks_of_host};
}

}  // namespace

TuneResult tune(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                const TuneRequest& request) {
  TuneResult result = search(recipe, plugins, costs, request);
  conclude(recipe, plugins, costs, request, result);
  return result;
}

TuneResult search(const Recipe& recipe, PluginHost& plugins, const CostTable& costs,
                  const TuneRequest& request) {
  const CostTable known = costs_of(recipe, plugins, costs);
  TuneResult result;
  result.ranks = ranks_to_tune(recipe, plugins, request.wish);
  result.ranks_of_host = ranks_of_a_host(recipe, plugins, request.wish, result.ranks);
  const TuneSpace space(recipe, plugins, request.wish, result.ranks);
  result.left_out = space.left_out();
  const TrialBase base = base_of(recipe, plugins, known, result);
  search_space(space, base, request, result);
  if (result.best.empty()) refuse(result);
  return result;
}

void conclude(const Recipe& recipe, PluginHost& plugins, const CostTable& costs, const TuneRequest& request,
              TuneResult& result) {
  const TunedCandidate& best = result.best.front();
  if (request.why) {
    const CostTable known = costs_of(recipe, plugins, costs);
    result.why = why(recipe, plugins, base_of(recipe, plugins, known, result), request, result);
  }
  result.recipe = tuned_toml(recipe_of(best, recipe, plugins), best.sets);
}

Recipe recipe_of(const TunedCandidate& candidate, const Recipe& recipe, PluginHost& plugins) {
  const std::string base = toml_without(recipe, "mesh", [](const recipe::Entry&) { return std::string(); });
  return Recipe::parse(base, "the recipe", candidate.sets, plugins.catalog());
}

std::string tuned_toml(const Recipe& tuned, const std::vector<std::string>& sets) {
  std::set<std::string> chosen;
  for (const std::string& one : sets) chosen.insert(one.substr(0, one.find('=')));
  return toml_without(tuned, {}, [&](const recipe::Entry& entry) {
    return chosen.count(entry.path) != 0 ? std::string("chosen by prun tune") : std::string();
  });
}

}  // namespace prun
