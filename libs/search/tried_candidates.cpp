#include "search/tried_candidates.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/thread.hpp"

namespace prun {

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

}  // namespace prun
