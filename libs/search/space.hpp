// Describes the space of ways to fill in what a recipe leaves out. Strategies are known by what their notes
// say.
#pragma once

#include <string>
#include <vector>

#include "search/candidate_maker.hpp"
#include "search/open_choices.hpp"

namespace prun {

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
  TuneSpace(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish, std::int64_t ranks)
      : open_(open_choices(recipe, plugins, wish, ranks)) {}

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
