#include "train/tune/candidate_moves.hpp"

#include <algorithm>

namespace prun {
namespace {

bool is_prime(std::int64_t number) {
  for (std::int64_t d = 2; d * d <= number; ++d)
    if (number % d == 0) return false;
  return true;
}

class CandidateMoves {
 public:
  explicit CandidateMoves(const OpenChoices& open) : open_(open), make_(open) {}

  std::vector<Candidate> from(const Candidate& candidate) {
    add_batch_moves(candidate);
    add_part_moves(candidate);
    add_key_moves(candidate);
    add_axis_moves(candidate);
    add_pairs(candidate);
    return std::move(moves_);
  }

 private:
  void add_batch_moves(const Candidate& candidate);
  void add_part_moves(const Candidate& candidate);
  void add_key_moves(const Candidate& candidate);
  void add_axis_moves(const Candidate& candidate);
  void carry_over(const Candidate& candidate, Candidate& next) const;
  void add_pairs(const Candidate& candidate);

  const OpenChoices& open_;
  const CandidateMaker make_;
  std::vector<Candidate> moves_;
};

void CandidateMoves::add_batch_moves(const Candidate& candidate) {
  for (const std::int64_t micro : make_.micros(candidate))
    if (micro != candidate.micro) {
      moves_.push_back(candidate);
      moves_.back().micro = micro;
    }
  for (const std::int64_t global : open_.globals) {
    Candidate other = candidate;
    other.global = global;
    if (global == candidate.global || make_.batch_ranks(other) > global || make_.micros(other).empty())
      continue;
    make_.settle_micro(other);
    moves_.push_back(std::move(other));
  }
}

void CandidateMoves::add_part_moves(const Candidate& candidate) {
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    const SpacePart& of = open_.parts[part];
    for (const std::string& value : first_values(of))
      if (std::optional<Candidate> added = make_.with_part(candidate, part, value))
        moves_.push_back(std::move(*added));
    if (!candidate.there[part]) continue;
    if (!of.place && !of.brings_axis()) {
      Candidate without = candidate;
      without.there[part] = false;
      without.options[part].clear();
      moves_.push_back(std::move(without));
    }
    for (const VariedOption& variable : of.variables.options)
      for (const std::string& value : variable.values) {
        const auto now = candidate.options[part].find(variable.key);
        if (now != candidate.options[part].end() && now->second == value) continue;
        Candidate changed = candidate;
        changed.options[part][variable.key] = value;
        moves_.push_back(std::move(changed));
      }
  }
}

void CandidateMoves::add_key_moves(const Candidate& candidate) {
  for (const VariedOption& key : open_.keys)
    for (const std::string& value : key.values) {
      const auto now = candidate.keys.find(key.key);
      if ((now == candidate.keys.end() ? key.values.front() : now->second) == value) continue;
      moves_.push_back(candidate);
      moves_.back().keys[key.key] = value;
    }
}

// Carries over what does not depend on the extents of axes.
void CandidateMoves::carry_over(const Candidate& candidate, Candidate& next) const {
  next.keys = candidate.keys;
  next.micro = candidate.micro;
  const bool shares = !make_.batch_axes(next).empty();
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    const SpacePart& of = open_.parts[part];
    const bool goes = of.variables.axis == AxisUse::batch && !shares && !of.place;
    if (of.brings_axis() && !next.there[part]) continue;
    if (!of.brings_axis()) next.there[part] = candidate.there[part] && !goes;
    if (candidate.there[part] && next.there[part]) next.options[part] = candidate.options[part];
  }
}

// Adds moves of a prime factor from one axis to another.
void CandidateMoves::add_axis_moves(const Candidate& candidate) {
  const std::vector<std::int64_t> extents = make_.free_extents(candidate);
  for (std::size_t from = 0; from < open_.free.size(); ++from)
    for (std::int64_t factor = 2; factor <= extents[from]; ++factor) {
      if (extents[from] % factor != 0 || !is_prime(factor)) continue;
      for (std::size_t to = 0; to < open_.free.size(); ++to) {
        if (to == from) continue;
        std::vector<std::int64_t> changed = extents;
        changed[from] /= factor;
        changed[to] *= factor;
        std::optional<Candidate> next = make_.with_extents(changed, candidate.global);
        if (!next) continue;
        carry_over(candidate, *next);
        make_.settle_micro(*next);
        moves_.push_back(std::move(*next));
      }
    }
}

// Adds pairs: two settings of one strategy may only work together, such as a schedule and its chunks.
void CandidateMoves::add_pairs(const Candidate& candidate) {
  const std::size_t single = moves_.size();
  for (std::size_t i = 0; i < single; ++i)
    for (std::size_t part = 0; part < open_.parts.size(); ++part) {
      if (moves_[i].there != candidate.there || moves_[i].options[part] == candidate.options[part]) continue;
      std::vector<Candidate> further;
      for (const VariedOption& variable : open_.parts[part].variables.options)
        for (const std::string& value : variable.values) {
          if (moves_[i].options[part][variable.key] != candidate.options[part].at(variable.key)) continue;
          if (candidate.options[part].at(variable.key) == value) continue;
          further.push_back(moves_[i]);
          further.back().options[part][variable.key] = value;
        }
      for (Candidate& one : further)
        if (std::find(moves_.begin(), moves_.end(), one) == moves_.end()) moves_.push_back(std::move(one));
    }
}

}  // namespace

std::vector<Candidate> moves_from(const Candidate& candidate, const OpenChoices& open) {
  return CandidateMoves(open).from(candidate);
}

}  // namespace prun
