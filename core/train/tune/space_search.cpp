#include "train/tune/space_search.hpp"

#include <algorithm>
#include <set>

#include "train/tune/search_result.hpp"

namespace prun {
namespace {

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
