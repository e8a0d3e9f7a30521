#include "train/tune/tune.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/text.hpp"
#include "base/thread.hpp"
#include "plugin/traits.hpp"
#include "simulate/machine.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/known_costs.hpp"
#include "train/assemble/one_host.hpp"
#include "train/tune/recipe_text.hpp"
#include "train/tune/why.hpp"

namespace prun {
namespace {

// How many candidates are planned: fewer where plans take long, which their ranks tell.
struct Effort {
  std::size_t first;                  // of those that were estimated
  std::size_t rounds, leaders, each;  // then so many times, from so many of the best, so many moves
};
Effort effort_for(std::int64_t ranks) {
  if (ranks <= 16) return {48, 6, 3, 48};
  if (ranks <= 256) return {32, 4, 2, 32};
  return {16, 2, 1, 24};
}
constexpr std::size_t most_freed = 64, most_ordered = 16;
constexpr double gain = 1e-3;        // of a step: less is no reason to go on
constexpr double batch_gain = 0.01;  // of the tokens a second: less is no reason for a larger batch

struct Entry {
  Candidate candidate;
  Estimate estimate;
  std::optional<Planned> planned;
};

class Search {
 public:
  Search(const TuneSpace& space, const TrialBase& base, const TuneRequest& request, TuneResult& result)
      : space_(space), request_(request), result_(result), effort_(effort_for(space.ranks())) {
    for (std::size_t i = 0; i < threads_of(request); ++i) trials_.push_back(std::make_unique<Trial>(base));
  }

  void run() {
    look_at_starts();
    plan_likeliest();
    for (std::size_t round = 0; round < effort_.rounds && improve(); ++round) {
    }
    take_best();
  }

 private:
  void say(const std::string& line) const {
    if (request_.say) request_.say(line);
  }

  // Those that were not seen before: their places among all.
  std::vector<std::size_t> add(std::vector<Candidate> candidates) {
    std::vector<std::size_t> fresh;
    for (Candidate& candidate : candidates) {
      const auto [known, is_new] = by_sets_.try_emplace(join(space_.sets(candidate), "\n"), entries_.size());
      if (!is_new) continue;
      fresh.push_back(entries_.size());
      entries_.push_back({std::move(candidate), {}, {}});
    }
    return fresh;
  }

  void estimate(const std::vector<std::size_t>& which) {
    share_out(trials_.size(), which.size(), [&](std::size_t thread, std::size_t i) {
      Entry& entry = entries_[which[i]];
      entry.estimate = trials_[thread]->estimate(space_.sets(entry.candidate));
    });
  }

  // What seconds of a step come to for as many sequences as the recipe has.
  double of_a_batch(std::size_t entry, double seconds) const {
    return seconds / space_.batches(entries_[entry].candidate);
  }

  std::vector<std::size_t> by_likely(std::vector<std::size_t> which) const {
    std::stable_sort(which.begin(), which.end(), [&](std::size_t a, std::size_t b) {
      return of_a_batch(a, entries_[a].estimate.likely) < of_a_batch(b, entries_[b].estimate.likely);
    });
    return which;
  }

  static void keep(std::vector<std::size_t>& which, std::size_t most) {
    if (which.size() > most) which.resize(most);
  }

  // Half are the first, and half the first of each set of strategies: estimates of one kind are wrong alike.
  void keep_of_every_kind(std::vector<std::size_t>& which, std::size_t most) const {
    if (which.size() <= most) return;
    std::set<std::vector<bool>> kinds;
    const auto is_first = [&](std::size_t e) { return kinds.insert(entries_[e].candidate.there).second; };
    const auto half = which.begin() + static_cast<std::ptrdiff_t>(most / 2);
    for (auto e = which.begin(); e != half; ++e) kinds.insert(entries_[*e].candidate.there);
    std::stable_partition(half, which.end(), is_first);
    keep(which, most);
  }

  std::vector<std::size_t> of_fate(const std::vector<std::size_t>& which, Fate fate) const {
    std::vector<std::size_t> some;
    for (const std::size_t i : which)
      if (entries_[i].estimate.fate == fate) some.push_back(i);
    return some;
  }

  // All ways to share out the ranks; then, of those that are too large, with memory freed; then, where hosts
  // are several, in other orders.
  void look_at_starts() {
    const std::vector<std::size_t> starts = add(space_.starts());
    say(detail::concat(starts.size(), " ways to share out ", space_.ranks(), " ranks and the batch"));
    estimate(starts);
    std::vector<std::size_t> large = by_likely(of_fate(starts, Fate::too_large));
    keep(large, most_freed);
    std::vector<Candidate> freed;
    for (const std::size_t i : large)
      for (Candidate& one : space_.freed(entries_[i].candidate)) freed.push_back(std::move(one));
    estimate(add(std::move(freed)));
    if (result_.ranks_of_host < space_.ranks()) look_at_orders();
  }

  void look_at_orders() {
    std::vector<std::size_t> good = by_likely(of_fate(all(), Fate::good));
    keep(good, most_ordered);
    std::vector<Candidate> ordered;
    for (const std::size_t i : good)
      for (Candidate& one : space_.orders(entries_[i].candidate)) ordered.push_back(std::move(one));
    estimate(add(std::move(ordered)));
  }

  std::vector<std::size_t> all() const {
    std::vector<std::size_t> all(entries_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  void plan_likeliest() {
    std::vector<std::size_t> good = of_fate(all(), Fate::good);
    if (request_.goal == TuneGoal::memory)
      std::stable_sort(good.begin(), good.end(), [&](std::size_t a, std::size_t b) {
        return entries_[a].estimate.bytes < entries_[b].estimate.bytes;
      });
    else
      good = by_likely(std::move(good));
    keep_of_every_kind(good, effort_.first);
    say(detail::concat("planning the likeliest ", good.size(), " of ", entries_.size()));
    plan(good);
    // Where none of these fits after all, what is estimated too small may be the reason: the next ones.
    if (best().empty()) {
      std::vector<Candidate> freed;
      for (const std::size_t i : good)
        for (Candidate& one : space_.freed(entries_[i].candidate)) freed.push_back(std::move(one));
      std::vector<std::size_t> more = add(std::move(freed));
      estimate(more);
      more = by_likely(of_fate(more, Fate::good));
      keep(more, 2 * effort_.first);
      plan(more);
    }
  }

  void plan(const std::vector<std::size_t>& which) {
    share_out(trials_.size(), which.size(), [&](std::size_t thread, std::size_t i) {
      Entry& entry = entries_[which[i]];
      entry.planned = trials_[thread]->plan(space_.sets(entry.candidate), false);
    });
    result_.planned += static_cast<std::int64_t>(which.size());
  }

  bool better(std::size_t a, std::size_t b) const {
    const Planned &one = *entries_[a].planned, &other = *entries_[b].planned;
    if (request_.goal == TuneGoal::memory && one.device_bytes != other.device_bytes)
      return one.device_bytes < other.device_bytes;
    return of_a_batch(a, one.step_seconds) < of_a_batch(b, other.step_seconds);
  }

  std::vector<std::size_t> best() const {
    std::vector<std::size_t> planned;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].planned && entries_[i].planned->fate == Fate::good) planned.push_back(i);
    std::stable_sort(planned.begin(), planned.end(),
                     [&](std::size_t a, std::size_t b) { return better(a, b); });
    return planned;
  }

  // From the leaders, whatever differs in one thing. Whether anything got better.
  bool improve() {
    const std::vector<std::size_t> leaders = best();
    if (leaders.empty()) return false;
    const std::size_t before = leaders.front();
    const double seconds = of_a_batch(before, entries_[before].planned->step_seconds);
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < std::min(effort_.leaders, leaders.size()); ++i) {
      const Candidate from = entries_[leaders[i]].candidate;
      std::vector<Candidate> moves = space_.moves(from);
      if (result_.ranks_of_host < space_.ranks())
        for (Candidate& one : space_.orders(from)) moves.push_back(std::move(one));
      std::vector<std::size_t> fresh = add(std::move(moves));
      estimate(fresh);
      fresh = by_likely(of_fate(fresh, Fate::good));
      if (request_.goal != TuneGoal::memory)
        std::erase_if(fresh, [&](std::size_t e) { return ruled_out(e, seconds); });
      keep(fresh, effort_.each);
      chosen.insert(chosen.end(), fresh.begin(), fresh.end());
    }
    say(detail::concat("planning ", chosen.size(), " that are near the best"));
    plan(chosen);
    const std::size_t after = best().front();
    if (request_.goal == TuneGoal::memory) return better(after, before);
    return of_a_batch(after, entries_[after].planned->step_seconds) < seconds * (1 - gain);
  }

  // The least is counted call by call, and calls that go together may take somewhat less.
  bool ruled_out(std::size_t entry, double leader) {
    constexpr double margin = 0.9;
    if (of_a_batch(entry, entries_[entry].estimate.least) * margin <= leader) return false;
    ++result_.ruled_out;
    return true;
  }

  void take_best() {
    std::vector<std::size_t> order = best();
    smallest_batch_first(order);
    // The first that stands up to proof leads.
    std::size_t taken = 0;
    for (; taken < order.size(); ++taken) {
      Planned whole = trials_.front()->plan(space_.sets(entries_[order[taken]].candidate), true);
      if (whole.fate != Fate::good) continue;
      entries_[order[taken]].planned = std::move(whole);
      break;
    }
    order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(taken));
    for (const std::size_t i : order)
      if (result_.best.size() < request_.shown && !is_shown(*entries_[i].planned))
        result_.best.push_back(tuned(i, result_.best.empty()));
    count();
  }

  // Of those that are as good as the best.
  void smallest_batch_first(std::vector<std::size_t>& order) const {
    if (request_.goal != TuneGoal::tokens || order.empty()) return;
    const auto seconds = [&](std::size_t e) { return of_a_batch(e, entries_[e].planned->step_seconds); };
    const double most = seconds(order.front()) * (1 + batch_gain);
    const auto worse =
        std::find_if(order.begin(), order.end(), [&](std::size_t e) { return seconds(e) > most; });
    std::stable_sort(order.begin(), worse, [&](std::size_t a, std::size_t b) {
      return entries_[a].candidate.global < entries_[b].candidate.global;
    });
  }

  // Another way to write the same plan: an option that changes nothing, a strategy with nothing to do.
  bool is_shown(const Planned& planned) const {
    return std::any_of(result_.best.begin(), result_.best.end(), [&](const TunedCandidate& one) {
      return one.planned.step_seconds == planned.step_seconds &&
             one.planned.device_bytes == planned.device_bytes;
    });
  }

  TunedCandidate tuned(std::size_t entry, bool proven) const {
    const Entry& one = entries_[entry];
    return {space_.sets(one.candidate), space_.text(one.candidate), one.planned.value_or(Planned{}), proven};
  }

  void count() {
    result_.looked_at = static_cast<std::int64_t>(entries_.size());
    std::map<std::string, std::int64_t> refusals;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      const Fate fate = entry.planned ? entry.planned->fate : entry.estimate.fate;
      const std::string& why = entry.planned ? entry.planned->why : entry.estimate.why;
      result_.refused += fate == Fate::refused;
      result_.lacked_memory += fate == Fate::too_large;
      if (fate != Fate::good && !why.empty()) ++refusals[why];
    }
    for (const std::size_t i : by_likely(all())) {
      const Entry& entry = entries_[i];
      const bool lacks = (entry.planned ? entry.planned->fate : entry.estimate.fate) == Fate::too_large;
      if (lacks && entry.estimate.likely > 0 && result_.too_large.size() < request_.shown)
        result_.too_large.push_back(tuned(i, false));
    }
    const auto commonest = std::max_element(refusals.begin(), refusals.end(),
                                            [](const auto& a, const auto& b) { return a.second < b.second; });
    if (commonest != refusals.end()) result_.refusal = commonest->first;
  }

  const TuneSpace& space_;
  const TuneRequest& request_;
  TuneResult& result_;
  const Effort effort_;
  std::vector<std::unique_ptr<Trial>> trials_;  // one a thread
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> by_sets_;  // into entries_
};

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
  return ranks_of_host(info, ranks);
}

[[noreturn]] void refuse(const TuneResult& result) {
  throw_error(ErrorCode::bad_input, "none of ", result.looked_at, " ways to lay the step out over ",
              result.ranks, result.ranks == 1 ? " rank" : " ranks", " can be taken: ", result.lacked_memory,
              " need more memory than there is, ", result.refused,
              " cannot be combined with what the recipe says; most often: ", result.refusal,
              "; more ranks (--ranks), a smaller model or model.seq, or saying less in the recipe may help");
}

}  // namespace

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

void check_costs(const Recipe& recipe, PluginHost& plugins, const CostTable& costs) {
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  if (costs.has_kernels_of(info.name.view()) || costs.rates_of(info.name.view())) return;
  // Layouts over more ranks may have what was measured: theirs have fewer threads each.
  if (!info.absent && !costs.exact.empty()) return;
  const std::string_view option =
      trait_of(plugins.note("device", recipe.section("device").plugin()), "plan_name");
  throw_error(ErrorCode::not_found, "no cost table says what anything takes on '", info.name.view(),
              "'; prun bench kernels and prun bench comm measure this machine",
              option.empty() ? ""
                             : detail::concat(", and device.", option,
                                              " names one whose rates come with prun: ", names_of_shipped()));
}

}  // namespace

namespace {

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
  check_costs(recipe, plugins, costs);
  TuneResult result;
  result.ranks = ranks_to_tune(recipe, plugins, request.wish);
  result.ranks_of_host = ranks_of_a_host(recipe, plugins, request.wish, result.ranks);
  const TuneSpace space(recipe, plugins, request.wish, result.ranks);
  result.left_out = space.left_out();
  const TrialBase base = base_of(recipe, plugins, costs, result);
  Search(space, base, request, result).run();
  if (result.best.empty()) refuse(result);
  return result;
}

void conclude(const Recipe& recipe, PluginHost& plugins, const CostTable& costs, const TuneRequest& request,
              TuneResult& result) {
  const TunedCandidate& best = result.best.front();
  if (request.why)
    result.why = why(recipe, plugins, base_of(recipe, plugins, costs, result), request, result);
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
