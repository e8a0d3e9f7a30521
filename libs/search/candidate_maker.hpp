// Makes consistent candidates: strategies that share the batch out over axes that exist, and a microbatch
// that is a part of a rank's share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "search/open_choices.hpp"

namespace prun {

class CandidateMaker {
 public:
  explicit CandidateMaker(const OpenChoices& open) : open_(open) {}

  // Returns nothing if the batch cannot be shared out so. Strategies of axes with one rank are left out,
  // unless the recipe has them.
  std::optional<Candidate> with_extents(const std::vector<std::int64_t>& extents, std::int64_t global) const;
  // Returns the candidate with one more strategy: one of its variables has `value`, and those after it their
  // first. Returns nothing if it is there already, or has nothing to do.
  std::optional<Candidate> with_part(Candidate candidate, std::size_t part, const std::string& value) const;
  // Returns the candidate with that strategy, all of whose variables that free memory free the most they can:
  // each alone may not be enough. Returns nothing if that changes nothing.
  std::optional<Candidate> with_all_freed(const Candidate& candidate, std::size_t part) const;
  // Returns the extents of the axes that are searched.
  std::vector<std::int64_t> free_extents(const Candidate& candidate) const;
  // Returns the axes that the batch is split over; the next function returns how many ranks those have.
  std::vector<std::string> batch_axes(const Candidate& candidate) const;
  std::int64_t batch_ranks(const Candidate& candidate) const;
  // Returns powers of two that share the batch out evenly, and all that a rank has of it.
  std::vector<std::int64_t> micros(const Candidate& candidate) const;
  // Changes the microbatch with the way in which the batch is shared out.
  void settle_micro(Candidate& candidate) const;

 private:
  const OpenChoices& open_;
};

// Returns the values that a part's first variable may have.
std::vector<std::string> first_values(const SpacePart& part);

}  // namespace prun
