// Candidates that hang together: strategies that share the batch out over axes that are there, and a
// microbatch that is a part of what a rank has of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/tune/open_choices.hpp"

namespace prun {

class CandidateMaker {
 public:
  explicit CandidateMaker(const OpenChoices& open) : open_(open) {}

  // Nothing where the batch cannot be shared out so. Strategies of axes with one rank are left out, unless
  // the recipe has them.
  std::optional<Candidate> with_extents(const std::vector<std::int64_t>& extents, std::int64_t global) const;
  // Returns it with one more strategy: one of its variables has `value`, and those after it their first.
  // Returns nothing where it is there, or finds nothing to do.
  std::optional<Candidate> with_part(Candidate candidate, std::size_t part, const std::string& value) const;
  // Returns the extents of the axes that are searched.
  std::vector<std::int64_t> free_extents(const Candidate& candidate) const;
  // Return the axes that the batch is split over, and how many ranks those have.
  std::vector<std::string> batch_axes(const Candidate& candidate) const;
  std::int64_t batch_ranks(const Candidate& candidate) const;
  // Powers of two that share the batch out evenly, and all that a rank has of it.
  std::vector<std::int64_t> micros(const Candidate& candidate) const;
  // Where the batch is shared out otherwise, the microbatch goes with it.
  void settle_micro(Candidate& candidate) const;

 private:
  const OpenChoices& open_;
};

// The values that a part's first variable may have.
std::vector<std::string> first_values(const SpacePart& part);

}  // namespace prun
