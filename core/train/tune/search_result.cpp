#include "train/tune/search_result.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace prun {
namespace {

constexpr double same = 1e-4;        // part of a time or size that no table shows
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

}  // namespace

void conclude_search(TriedCandidates& tried, const TuneSpace& space, const TuneRequest& request,
                     TuneResult& result) {
  SearchResult(tried, space, request, result).take_best();
}

}  // namespace prun
