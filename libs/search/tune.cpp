#include "search/tune.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/number_text.hpp"
#include "plugin/traits.hpp"
#include "search/laid_out.hpp"
#include "search/space_search.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ why

// Writes sentences about a search's result: what bounds the best, why the next one loses, and what one more
// rank, one more GiB or twice the link would give, by planning it.

constexpr double least_of_rounding = 0.02;  // least gain for which other rounding is named

std::string percent(double share) { return format("%.1f %%", share * 100); }

// Describes what holds a step up beside what its ranks compute; parts may overlap.
struct Part {
  double seconds;
  std::string_view bound, longer;  // what it is as the bound of a step; how one loses by it
};
std::vector<Part> parts_of(const Planned& planned) {
  const double idle = planned.bubble * planned.step_seconds;
  return {{planned.exposed.communication - idle, "what it exchanges, or waits for",
           "it exposes % more of communication"},
          {planned.exposed.drives.value_or(0), "its drives", "it waits % longer for drives"},
          {planned.exposed.transfers, "copies and what is updated elsewhere",
           "copies and what is updated elsewhere hold it up % longer"},
          {idle, "its pipeline's order", "its pipeline stands idle % longer"}};
}

std::string shares_of(const Planned& planned) {
  const auto share = [&](double seconds) { return percent(seconds / planned.step_seconds); };
  const Exposed& exposed = planned.exposed;
  std::string text = "computing " + share(planned.busy) + " of the step, exposed communication " +
                     share(exposed.communication);
  if (planned.bubble > 0)
    text += ", of which the order of the pipeline alone is " +
            share(std::min(planned.bubble * planned.step_seconds, exposed.communication));
  if (exposed.transfers > 0) text += ", held up by copies and updates elsewhere " + share(exposed.transfers);
  if (exposed.drives) text += ", by drives " + share(*exposed.drives);
  return text;
}

std::string bound_of(const Planned& best) {
  const std::vector<Part> parts = parts_of(best);
  const Part& most = *std::max_element(parts.begin(), parts.end(),
                                       [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  const bool computes = best.busy >= std::max(most.seconds, 0.7 * best.step_seconds);
  return detail::concat("the best is bound by ", computes ? "what its ranks compute" : most.bound, ": ",
                        shares_of(best));
}

// Returns the seconds that a step of one would take for the tokens of another's.
double seconds_as(const Planned& one, const Planned& other) {
  return other.step_seconds * other.tokens_per_second / one.tokens_per_second;
}

// Returns the reason that weighs most, in seconds.
std::string loses_by(const Planned& best, const Planned& next) {
  const double part = seconds_as(next, best) / next.step_seconds;
  Part most{next.busy * part - best.busy, {}, "its busiest rank computes % longer"};
  const std::vector<Part> of_best = parts_of(best), of_next = parts_of(next);
  for (std::size_t i = 0; i < of_best.size(); ++i)
    if (const double more = of_next[i].seconds * part - of_best[i].seconds; more > most.seconds)
      most = {more, {}, of_next[i].longer};
  if (most.seconds <= 0) return "no single part of it takes longer";
  const std::size_t at = most.longer.find('%');
  return detail::concat(most.longer.substr(0, at), time_text(most.seconds), most.longer.substr(at + 1));
}

std::string runner_up(const TuneResult& result, TuneGoal goal) {
  if (result.best.size() < 2) return "no other way was found";
  const Planned &best = result.best[0].planned, &next = result.best[1].planned;
  const std::string who = "the next one (" + result.best[1].text + ") ";
  if (goal == TuneGoal::memory)
    return who + "needs " + size_text(next.device_bytes - best.device_bytes) + " more";
  if (const auto& first = result.best[0].trained, &second = result.best[1].trained; first)
    return who + (second ? "took " + time_text(*second) + " a step when both were trained, the best " +
                               time_text(*first)
                         : std::string("was not trained"));
  const double longer = seconds_as(next, best) / best.step_seconds - 1;
  if (longer < -5e-4) return who + "gives " + percent(-longer) + " more tokens a second, of a larger batch";
  if (longer < 5e-4) return who + "is as fast";
  return who + "takes " + percent(longer) + " longer: " + loses_by(best, next);
}

std::string change(double now, double then) {
  const double gain = 1 - then / now;
  if (gain < 5e-4) return "nothing";
  return time_text(then) + " a step instead of " + time_text(now) + ", " + percent(gain) + " less";
}

class WhatIf {
 public:
  WhatIf(const Recipe& recipe, PluginHost& plugins, const TrialBase& base, const TuneRequest& request,
         const TuneResult& result)
      : recipe_(recipe), plugins_(plugins), base_(base), request_(request), result_(result) {}

  // Looks for the best of the shown candidates, by another table.
  std::string twice_the_link() const {
    if (result_.ranks == 1) return "";
    const CostTable table = base_.costs->with_links(2);
    TrialBase other = base_;
    other.costs = &table;
    const std::optional<Planned> best = best_of(other, sets_of(result_.best));
    return best ? "twice the links between ranks would give " + change(now(), then(*best)) : "";
  }

  // Looks for the likeliest candidate that lacks memory.
  std::string one_more_gib() const {
    const std::string key = key_of_memory();
    if (result_.too_large.empty())
      return "one more GiB would give nothing: no way that was looked at lacks memory";
    if (key.empty()) return "";
    TrialBase other = base_;
    const std::optional<std::int64_t> said = recipe_.section("device").bytes("memory");
    const std::string value = key == "device.memory" ? detail::concat(*said + (std::int64_t{1} << 30), "B")
                                                     : format("%.17g", recipe_.number(key) + 1);
    other.recipe =
        toml_without(Recipe::parse(base_.recipe, "the recipe", std::vector<std::string>{key + "=" + value},
                                   plugins_.catalog()),
                     "mesh", [](const recipe::Entry&) { return std::string(); });
    const std::optional<Planned> best = best_of(other, sets_of(result_.too_large));
    return "one more GiB of a rank's device would give " +
           change(now(), best ? std::min(now(), then(*best)) : now());
  }

  // Looks for the best of what was shown or lacks memory with other rounding: masters whose upper half is the
  // parameter, gradients in bf16. Numbers differ then, so nobody gets them unasked.
  std::string other_rounding() const {
    std::vector<std::string> more;
    for (const auto& [key, value] : {std::pair{"precision.master", "split"}, {"precision.gradient", "bf16"}})
      if (recipe_.text(key) != value) more.push_back(detail::concat(key, "=", value));
    if (more.empty() || recipe_.text("precision.compute") != "bf16") return "";
    std::vector<std::vector<std::string>> sets = sets_of(result_.best);
    for (std::vector<std::string>& one : sets_of(result_.too_large)) sets.push_back(std::move(one));
    for (std::vector<std::string>& one : sets) one.insert(one.end(), more.begin(), more.end());
    const std::optional<Planned> best = best_of(base_, sets);
    if (!best || then(*best) > now() * (1 - least_of_rounding)) return "";
    return "other rounding, " + join(more, " and ") + ", would give " + change(now(), then(*best));
  }

  std::string more_ranks() const {
    std::string text = ranks_text(result_.ranks + 1);
    if (text.empty()) text = ranks_text(result_.ranks * 2);
    return text;
  }

 private:
  double now() const { return result_.best.front().planned.step_seconds; }
  double then(const Planned& planned) const { return seconds_as(planned, result_.best.front().planned); }

  static std::vector<std::vector<std::string>> sets_of(const std::vector<TunedCandidate>& candidates) {
    std::vector<std::vector<std::string>> sets(candidates.size());
    for (std::size_t i = 0; i < sets.size(); ++i) sets[i] = candidates[i].sets;
    return sets;
  }

  std::optional<Planned> best_of(const TrialBase& base,
                                 const std::vector<std::vector<std::string>>& sets) const {
    std::vector<std::unique_ptr<Trial>> trials;
    for (std::size_t i = 0; i < threads_of(request_); ++i) trials.push_back(std::make_unique<Trial>(base));
    std::vector<Planned> planned(sets.size());
    share_out(trials.size(), sets.size(),
              [&](std::size_t thread, std::size_t i) { planned[i] = trials[thread]->plan(sets[i], false); });
    std::optional<Planned> best;
    for (Planned& one : planned)
      if (one.fate == Fate::good && (!best || one.tokens_per_second > best->tokens_per_second))
        best = std::move(one);
    return best;
  }

  // Returns the key by which the recipe states the size of the memory that bounds the best.
  std::string key_of_memory() const {
    if (recipe_.section("device").bytes("memory")) return "device.memory";
    const std::string_view option =
        trait_of(plugins_.note("device", recipe_.section("device").plugin()), "plan");
    const std::string key = "device." + std::string(option);
    return !option.empty() && recipe_.find(key) && recipe_.number(key) > 0 ? key : "";
  }

  // Describes the likeliest ways of that many ranks; the text is empty if they cannot share out what there
  // is.
  std::string ranks_text(std::int64_t ranks) const {
    constexpr std::size_t most = 8;
    try {
      const TuneSpace space(recipe_, plugins_, request_.scope, ranks);
      std::vector<Candidate> starts = space.starts();
      for (Candidate& one : as_the_best(space)) starts.push_back(std::move(one));
      TrialBase other = base_;
      if (other.ranks_of_host >= result_.ranks) other.ranks_of_host = ranks;
      Trial trial(other);
      std::vector<std::pair<double, std::vector<std::string>>> likely;
      for (const Candidate& start : starts) {
        const Estimate estimate = trial.estimate(space.sets(start));
        if (estimate.fate == Fate::good)
          likely.emplace_back(estimate.likely / space.batches(start), space.sets(start));
      }
      std::stable_sort(likely.begin(), likely.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      std::vector<std::vector<std::string>> sets;
      for (const auto& [seconds, one] : likely)
        if (sets.size() < most) sets.push_back(one);
      const std::optional<Planned> best = best_of(other, sets);
      if (!best) return "";
      return detail::concat(ranks == result_.ranks + 1 ? "one more rank" : "twice the ranks", " would give ",
                            change(now(), then(*best)), ", of few ways that were planned");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
      return "";
    }
  }

  // Returns the best's additions, on every way to share out those ranks.
  static std::vector<Candidate> as_the_best(const TuneSpace& space) {
    std::vector<Candidate> all;
    for (const Candidate& start : space.starts())
      for (Candidate& one : space.freed(start)) all.push_back(std::move(one));
    constexpr std::size_t most = 200;
    if (all.size() > most) all.resize(most);
    return all;
  }

  const Recipe& recipe_;
  PluginHost& plugins_;
  const TrialBase& base_;
  const TuneRequest& request_;
  const TuneResult& result_;
};

// `base` is that of the search, whose recipe is this one without [mesh].
std::vector<std::string> why(const Recipe& recipe, PluginHost& plugins, const TrialBase& base,
                             const TuneRequest& request, const TuneResult& result) {
  const WhatIf what_if(recipe, plugins, base, request, result);
  std::vector<std::string> lines = {bound_of(result.best.front().planned),
                                    runner_up(result, request.goal),
                                    what_if.more_ranks(),
                                    what_if.one_more_gib(),
                                    what_if.twice_the_link(),
                                    what_if.other_rounding()};
  std::erase(lines, "");
  return lines;
}

std::int64_t ranks_of_a_host(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope,
                             std::int64_t ranks) {
  if (scope.hosts > 0) {
    if (ranks % scope.hosts != 0)
      throw_error(ErrorCode::bad_input, ranks, " ranks cannot be shared out over ", scope.hosts,
                  " hosts, as many on each; change one of the two");
    return ranks / scope.hosts;
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

std::int64_t ranks_to_tune(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope) {
  if (scope.ranks > 0) return scope.ranks;
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
  result.ranks = ranks_to_tune(recipe, plugins, request.scope);
  result.ranks_of_host = ranks_of_a_host(recipe, plugins, request.scope, result.ranks);
  const TuneSpace space(recipe, plugins, request.scope, result.ranks);
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
