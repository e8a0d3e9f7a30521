// Searches a space: it decides which candidates are estimated, and which of them planned.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search/tune.hpp"

namespace prun {

// ------------------------------------------------------------------- tried candidates
// Holds the candidates that a search has looked at: their estimates, the results of planning them, and which
// of them are better.

struct TriedCandidate {
  Candidate candidate;
  Estimate estimate;
  std::optional<Planned> planned;
};

class TriedCandidates {
 public:
  // Lists places among all candidates.
  using Places = std::vector<std::size_t>;

  TriedCandidates(const TuneSpace& space, const TrialBase& base, TuneGoal goal, std::size_t threads);

  std::size_t size() const { return entries_.size(); }
  TriedCandidate& operator[](std::size_t place) { return entries_[place]; }
  const TriedCandidate& operator[](std::size_t place) const { return entries_[place]; }
  Places all() const;

  // Returns those that were not tried before.
  Places add(std::vector<Candidate> candidates);
  void estimate(const Places& which);
  void plan(const Places& which);
  // Plans the whole candidate, and proves the plan.
  Planned prove(std::size_t place);

  Places of_fate(const Places& which, Fate fate) const;
  Places by_likely(Places which) const;
  Places by_memory(Places which) const;
  // Scales the seconds of a step to as many sequences as the recipe has.
  double of_a_batch(std::size_t place, double seconds) const {
    return seconds / space_.batches(entries_[place].candidate);
  }
  // Returns the same for a step as it was planned.
  double planned_seconds(std::size_t place) const {
    return of_a_batch(place, entries_[place].planned->step_seconds);
  }
  // Compares, by the goal, candidates that were planned.
  bool better(std::size_t a, std::size_t b) const;
  Places best() const;

 private:
  const TuneSpace& space_;
  const TuneGoal goal_;
  std::vector<std::unique_ptr<Trial>> trials_;  // one for each thread
  std::vector<TriedCandidate> entries_;
  std::map<std::string, std::size_t> by_sets_;  // places in entries_
};

// Keeps the first `most` places.
void keep_first(TriedCandidates::Places& which, std::size_t most);

// ------------------------------------------------------------------- space search

// Puts the result of the search in `result`, its best proven, or none if nothing can be taken.
void search_space(const TuneSpace& space, const TrialBase& base, const TuneRequest& request,
                  TuneResult& result);

}  // namespace prun
