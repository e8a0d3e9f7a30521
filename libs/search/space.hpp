// Describes the space of ways to fill in what a recipe leaves out. Strategies are known by what their notes
// say.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "search/open_choices.hpp"

namespace prun {

// ------------------------------------------------------------------- candidate maker
// Makes consistent candidates: strategies that share the batch out over axes that exist, and a microbatch
// that is a part of a rank's share.

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

// ------------------------------------------------------------------- space

// ------------------------------------------------------------ candidate words

// Writes a candidate as --set takes it, and as people read it.

// Returns settings over a recipe without [mesh].
std::vector<std::string> sets_of(const Candidate& candidate, const OpenChoices& open);

// Returns a text such as "dp 4 x tp 2, micro 2, zero stage 1, tensor sequence true".
std::string text_of(const Candidate& candidate, const OpenChoices& open);

// ------------------------------------------------------------ candidate moves

// Makes from one candidate those that differ from it in one thing.

// Returns moves: another microbatch or batch, a strategy more or less, another value of an option or key, a
// prime factor of ranks from one axis to another; two settings of one strategy, which may only work together.
std::vector<Candidate> moves_from(const Candidate& candidate, const OpenChoices& open);

class TuneSpace {
 public:
  // Throws bad_input if the ranks cannot be those of the given mesh.
  TuneSpace(const Recipe& recipe, PluginHost& plugins, const TuneScope& scope, std::int64_t ranks)
      : open_(open_choices(recipe, plugins, scope, ranks)) {}

  const std::vector<SpacePart>& parts() const { return open_.parts; }
  std::int64_t ranks() const { return open_.ranks; }
  // Lists what stays as it is although it might be varied, and why: a sentence each.
  const std::vector<std::string>& left_out() const { return open_.left_out; }

  // Returns every way to share the ranks out over axes with every microbatch, with nothing else added.
  std::vector<Candidate> starts() const;
  // Returns the same candidate with strategies that free memory, the mildest first.
  std::vector<Candidate> freed(const Candidate& candidate) const;
  // Returns all that differ from a candidate in one thing.
  std::vector<Candidate> moves(const Candidate& candidate) const { return moves_from(candidate, open_); }
  // Returns the same with its axes in every other order on the ranks.
  std::vector<Candidate> orders(const Candidate& candidate) const;
  std::vector<std::string> sets(const Candidate& candidate) const { return sets_of(candidate, open_); }
  std::string text(const Candidate& candidate) const { return text_of(candidate, open_); }
  // Returns how many times the recipe's batch a step of it takes.
  double batches(const Candidate& candidate) const {
    return static_cast<double>(candidate.global) / static_cast<double>(open_.globals.front());
  }

 private:
  OpenChoices open_;
};

}  // namespace prun
