#include "search/space_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.hpp"
#include "base/thread.hpp"

namespace prun {

// ------------------------------------------------------------------- tried candidates

TriedCandidates::TriedCandidates(const TuneSpace& space, const TrialBase& base, TuneGoal goal,
                                 std::size_t threads)
    : space_(space), goal_(goal) {
  for (std::size_t i = 0; i < threads; ++i) trials_.push_back(std::make_unique<Trial>(base));
}

TriedCandidates::Places TriedCandidates::all() const {
  Places all(entries_.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TriedCandidates::Places TriedCandidates::add(std::vector<Candidate> candidates) {
  Places fresh;
  for (Candidate& candidate : candidates) {
    const auto [known, is_new] = by_sets_.try_emplace(join(space_.sets(candidate), "\n"), entries_.size());
    if (!is_new) continue;
    fresh.push_back(entries_.size());
    entries_.push_back({std::move(candidate), {}, {}});
  }
  return fresh;
}

void TriedCandidates::estimate(const Places& which) {
  share_out(trials_.size(), which.size(), [&](std::size_t thread, std::size_t i) {
    TriedCandidate& entry = entries_[which[i]];
    entry.estimate = trials_[thread]->estimate(space_.sets(entry.candidate));
  });
}

void TriedCandidates::plan(const Places& which) {
  share_out(trials_.size(), which.size(), [&](std::size_t thread, std::size_t i) {
    TriedCandidate& entry = entries_[which[i]];
    entry.planned = trials_[thread]->plan(space_.sets(entry.candidate), false);
  });
}

Planned TriedCandidates::prove(std::size_t place) {
  return trials_.front()->plan(space_.sets(entries_[place].candidate), true);
}

TriedCandidates::Places TriedCandidates::of_fate(const Places& which, Fate fate) const {
  Places some;
  for (const std::size_t i : which)
    if (entries_[i].estimate.fate == fate) some.push_back(i);
  return some;
}

TriedCandidates::Places TriedCandidates::by_likely(Places which) const {
  std::stable_sort(which.begin(), which.end(), [&](std::size_t a, std::size_t b) {
    return of_a_batch(a, entries_[a].estimate.likely) < of_a_batch(b, entries_[b].estimate.likely);
  });
  return which;
}

TriedCandidates::Places TriedCandidates::by_memory(Places which) const {
  std::stable_sort(which.begin(), which.end(), [&](std::size_t a, std::size_t b) {
    return entries_[a].estimate.bytes < entries_[b].estimate.bytes;
  });
  return which;
}

bool TriedCandidates::better(std::size_t a, std::size_t b) const {
  const Planned &one = *entries_[a].planned, &other = *entries_[b].planned;
  if (goal_ == TuneGoal::memory && one.device_bytes != other.device_bytes)
    return one.device_bytes < other.device_bytes;
  return of_a_batch(a, one.step_seconds) < of_a_batch(b, other.step_seconds);
}

TriedCandidates::Places TriedCandidates::best() const {
  Places planned;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].planned && entries_[i].planned->fate == Fate::good) planned.push_back(i);
  std::stable_sort(planned.begin(), planned.end(),
                   [&](std::size_t a, std::size_t b) { return better(a, b); });
  return planned;
}

void keep_first(TriedCandidates::Places& which, std::size_t most) {
  if (which.size() > most) which.resize(most);
}

namespace {

// ------------------------------------------------------------------- space search

// ------------------------------------------------------------ search result

// Collects the result of a search: the best, proven, and the results of the others.

constexpr double same = 5e-3;        // part of a time or size below which candidates count as one
constexpr double batch_gain = 0.01;  // least gain of tokens a second for which a larger batch is taken

class SearchResult {
 public:
  SearchResult(TriedCandidates& tried, const TuneSpace& space, const TuneRequest& request, TuneResult& result)
      : tried_(tried), space_(space), request_(request), result_(result) {}

  void take_best() {
    TriedCandidates::Places order = tried_.best();
    smallest_batch_first(order);
    // The first candidate that can be proven leads.
    std::size_t taken = 0;
    for (; taken < order.size(); ++taken) {
      Planned whole = tried_.prove(order[taken]);
      if (whole.fate != Fate::good) continue;
      tried_[order[taken]].planned = std::move(whole);
      break;
    }
    order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(taken));
    for (const std::size_t i : order)
      if (result_.best.size() < request_.shown && !is_shown(*tried_[i].planned))
        result_.best.push_back(tuned(i, result_.best.empty()));
    count();
  }

 private:
  // Sorts those that are as good as the best.
  void smallest_batch_first(TriedCandidates::Places& order) const {
    if (request_.goal != TuneGoal::tokens || order.empty()) return;
    const auto seconds = [&](std::size_t e) { return tried_.planned_seconds(e); };
    const double most = seconds(order.front()) * (1 + batch_gain);
    const auto worse =
        std::find_if(order.begin(), order.end(), [&](std::size_t e) { return seconds(e) > most; });
    std::stable_sort(order.begin(), worse, [&](std::size_t a, std::size_t b) {
      return tried_[a].candidate.global < tried_[b].candidate.global;
    });
  }

  // Says whether a shown candidate is as good as the same plan, by what a table shows of it: an option that
  // changes nothing, a strategy with nothing to do.
  bool is_shown(const Planned& planned) const {
    const auto is_near = [](double a, double b) { return std::abs(a - b) <= same * std::abs(b); };
    return std::any_of(result_.best.begin(), result_.best.end(), [&](const TunedCandidate& one) {
      return is_near(one.planned.tokens_per_second, planned.tokens_per_second) &&
             is_near(one.planned.step_seconds, planned.step_seconds) &&
             is_near(static_cast<double>(one.planned.device_bytes),
                     static_cast<double>(planned.device_bytes));
    });
  }

  TunedCandidate tuned(std::size_t entry, bool proven) const {
    const TriedCandidate& one = tried_[entry];
    return {space_.sets(one.candidate), space_.text(one.candidate), one.planned.value_or(Planned{}), proven};
  }

  void count() {
    result_.looked_at = static_cast<std::int64_t>(tried_.size());
    Reasons refusals, missing;
    for (std::size_t i = 0; i < tried_.size(); ++i) {
      const TriedCandidate& entry = tried_[i];
      const Fate fate = entry.planned ? entry.planned->fate : entry.estimate.fate;
      const std::string& why = entry.planned ? entry.planned->why : entry.estimate.why;
      result_.refused += fate == Fate::refused;
      result_.unpriced.count += fate == Fate::unpriced;
      result_.lacked_memory += fate == Fate::too_large;
      if (fate != Fate::good && !why.empty()) (fate == Fate::unpriced ? missing : refusals)[why].push_back(i);
    }
    take_too_large();
    if (!refusals.empty()) result_.refusal = commonest(refusals).first;
    if (missing.empty()) return;
    const auto& [why, ways] = commonest(missing);
    result_.unpriced.why = why;
    result_.unpriced.sets = space_.sets(tried_[ways.front()].candidate);
  }

  // Lists the places of what was tried by the reason why it is not good.
  using Reasons = std::map<std::string, std::vector<std::size_t>>;
  static const Reasons::value_type& commonest(const Reasons& reasons) {
    return *std::max_element(reasons.begin(), reasons.end(),
                             [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  }

  void take_too_large() {
    for (const std::size_t i : tried_.by_likely(tried_.all())) {
      const TriedCandidate& entry = tried_[i];
      const bool lacks = (entry.planned ? entry.planned->fate : entry.estimate.fate) == Fate::too_large;
      if (lacks && entry.estimate.likely > 0 && result_.too_large.size() < request_.shown)
        result_.too_large.push_back(tuned(i, false));
    }
  }

  TriedCandidates& tried_;
  const TuneSpace& space_;
  const TuneRequest& request_;
  TuneResult& result_;
};

void conclude_search(TriedCandidates& tried, const TuneSpace& space, const TuneRequest& request,
                     TuneResult& result) {
  SearchResult(tried, space, request, result).take_best();
}

// States how many candidates are planned: fewer if plans take long, which depends on their ranks.
struct Effort {
  std::size_t first;                  // number planned of those that were estimated
  std::size_t rounds, leaders, each;  // then so many rounds, from so many of the best, with so many moves
};
Effort effort_for(std::int64_t ranks) {
  if (ranks <= 16) return {48, 6, 3, 48};
  if (ranks <= 256) return {32, 4, 2, 32};
  return {16, 2, 1, 24};
}
constexpr std::size_t most_freed = 64, most_ordered = 16;
constexpr double gain = 1e-3;  // part of a step's time: less is no reason to go on

class Search {
 public:
  Search(const TuneSpace& space, const TrialBase& base, const TuneRequest& request, TuneResult& result)
      : space_(space),
        request_(request),
        result_(result),
        effort_(effort_for(space.ranks())),
        tried_(space, base, request.goal, threads_of(request)) {}

  void run() {
    look_at_starts();
    plan_likeliest();
    for (std::size_t round = 0; round < effort_.rounds && improve(); ++round) {
    }
    conclude_search(tried_, space_, request_, result_);
  }

 private:
  void say(const std::string& line) const {
    if (request_.say) request_.say(line);
  }

  // Keeps half of the best, and half of the best of each set of strategies: estimates of one kind have
  // similar errors.
  void keep_of_every_kind(TriedCandidates::Places& which, std::size_t most) const {
    if (which.size() <= most) return;
    std::set<std::vector<bool>> kinds;
    const auto is_first = [&](std::size_t e) { return kinds.insert(tried_[e].candidate.there).second; };
    const auto half = which.begin() + static_cast<std::ptrdiff_t>(most / 2);
    for (auto e = which.begin(); e != half; ++e) kinds.insert(tried_[*e].candidate.there);
    std::stable_partition(half, which.end(), is_first);
    keep_first(which, most);
  }

  // Tries all ways to share out the ranks; then those that are too large, with memory freed; then, with
  // several hosts, other orders.
  void look_at_starts() {
    const TriedCandidates::Places starts = tried_.add(space_.starts());
    say(detail::concat(starts.size(), " ways to share out ", space_.ranks(), " ranks and the batch"));
    tried_.estimate(starts);
    TriedCandidates::Places large = tried_.by_likely(tried_.of_fate(starts, Fate::too_large));
    keep_first(large, most_freed);
    std::vector<Candidate> freed;
    for (const std::size_t i : large)
      for (Candidate& one : space_.freed(tried_[i].candidate)) freed.push_back(std::move(one));
    tried_.estimate(tried_.add(std::move(freed)));
    if (result_.ranks_of_host < space_.ranks()) look_at_orders();
  }

  void look_at_orders() {
    TriedCandidates::Places good = tried_.by_likely(tried_.of_fate(tried_.all(), Fate::good));
    keep_first(good, most_ordered);
    std::vector<Candidate> ordered;
    for (const std::size_t i : good)
      for (Candidate& one : space_.orders(tried_[i].candidate)) ordered.push_back(std::move(one));
    tried_.estimate(tried_.add(std::move(ordered)));
  }

  void plan_likeliest() {
    TriedCandidates::Places good = tried_.of_fate(tried_.all(), Fate::good);
    good = request_.goal == TuneGoal::memory ? tried_.by_memory(std::move(good))
                                             : tried_.by_likely(std::move(good));
    keep_of_every_kind(good, effort_.first);
    say(detail::concat("planning the likeliest ", good.size(), " of ", tried_.size()));
    plan(good);
    // If none of these fits after all, estimates may be too small: the next ones are tried.
    if (tried_.best().empty()) {
      std::vector<Candidate> freed;
      for (const std::size_t i : good)
        for (Candidate& one : space_.freed(tried_[i].candidate)) freed.push_back(std::move(one));
      TriedCandidates::Places more = tried_.add(std::move(freed));
      tried_.estimate(more);
      more = tried_.by_likely(tried_.of_fate(more, Fate::good));
      keep_first(more, 2 * effort_.first);
      plan(more);
    }
  }

  void plan(const TriedCandidates::Places& which) {
    tried_.plan(which);
    result_.planned += static_cast<std::int64_t>(which.size());
  }

  // Tries, from the leaders, all moves. Returns whether anything got better.
  bool improve() {
    const TriedCandidates::Places leaders = tried_.best();
    if (leaders.empty()) return false;
    const std::size_t before = leaders.front();
    const double seconds = tried_.planned_seconds(before);
    TriedCandidates::Places chosen;
    for (std::size_t i = 0; i < std::min(effort_.leaders, leaders.size()); ++i) {
      const Candidate from = tried_[leaders[i]].candidate;
      std::vector<Candidate> moves = space_.moves(from);
      if (result_.ranks_of_host < space_.ranks())
        for (Candidate& one : space_.orders(from)) moves.push_back(std::move(one));
      TriedCandidates::Places fresh = tried_.add(std::move(moves));
      tried_.estimate(fresh);
      fresh = tried_.by_likely(tried_.of_fate(fresh, Fate::good));
      if (request_.goal != TuneGoal::memory)
        std::erase_if(fresh, [&](std::size_t e) { return ruled_out(e, seconds); });
      keep_first(fresh, effort_.each);
      chosen.insert(chosen.end(), fresh.begin(), fresh.end());
    }
    say(detail::concat("planning ", chosen.size(), " that are near the best"));
    plan(chosen);
    const std::size_t after = tried_.best().front();
    if (request_.goal == TuneGoal::memory) return tried_.better(after, before);
    return tried_.planned_seconds(after) < seconds * (1 - gain);
  }

  // Says whether a candidate is ruled out: its least time is counted call by call, and calls that go together
  // may take somewhat less.
  bool ruled_out(std::size_t entry, double leader) {
    constexpr double margin = 0.9;
    if (tried_.of_a_batch(entry, tried_[entry].estimate.least) * margin <= leader) return false;
    ++result_.ruled_out;
    return true;
  }

  const TuneSpace& space_;
  const TuneRequest& request_;
  TuneResult& result_;
  const Effort effort_;
  TriedCandidates tried_;
};

}  // namespace

void search_space(const TuneSpace& space, const TrialBase& base, const TuneRequest& request,
                  TuneResult& result) {
  Search(space, base, request, result).run();
}

}  // namespace prun
